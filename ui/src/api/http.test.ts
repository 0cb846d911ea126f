import { afterEach, describe, expect, it, vi } from 'vitest';
import { ApiError, errorFrom, pathOf, request } from './http';

describe('ApiError.field', () => {
  it.each([
    ['size: "x" must be a number', 'size'],
    ['disks.disk-1.path: must be absolute', 'disks'],
    ['nodeSelector[0]: "" is not a valid tag', 'nodeSelector'],
    ['volume "vol": size 5 does not fit', ''],
    ['the token is not valid: it must be of this cluster, not expired, and for the audience longhorn-backend', ''],
  ])('%s → %j', (message, want) => expect(new ApiError(422, '', message).field).toBe(want));
});

describe('errorFrom', () => {
  it("has the API's own words", () => {
    const e = errorFrom(422, 'Unprocessable Entity', '{"type":"error","code":"Insufficient Storage","message":"no room","detail":"node-1: full"}');
    expect([e.status, e.code, e.message, e.detail]).toEqual([422, 'Insufficient Storage', 'no room', 'node-1: full']);
  });
  it('shows text of a proxy, but no page of one', () => {
    expect(errorFrom(502, 'Bad Gateway', 'upstream is gone\n').message).toBe('upstream is gone');
    expect(errorFrom(502, 'Bad Gateway', '<html>').message).toBe('the API answered 502 Bad Gateway');
    expect(errorFrom(500, 'Internal Server Error', '').message).toBe('the API answered 500 Internal Server Error');
  });
});

describe('request', () => {
  afterEach(() => vi.unstubAllGlobals());

  // asked returns the result of a request for which fetch gives this answer.
  const asked = async (answer: () => Promise<Response>) => {
    vi.stubGlobal('fetch', answer);
    return request('GET', '/v1/volumes').catch((error: unknown) => error);
  };
  const broken = () => {
    const body = new ReadableStream({ start: (c) => c.error(new Error('the connection ended')) });
    return Promise.resolve(new Response(body));
  };

  it('gives what the API answers', async () => {
    expect(await asked(() => Promise.resolve(new Response('{"data":[]}')))).toEqual({ data: [] });
    expect(await asked(() => Promise.resolve(new Response(null, { status: 204 })))).toBeUndefined();
  });
  it.each<[string, () => Promise<Response>, number, string, string]>([
    ['no connection', () => Promise.reject(new TypeError('fetch')), 0, 'the API cannot be reached', ''],
    ['a connection that ends within the answer', broken, 0, 'the API cannot be reached', ''],
    ['a page of a proxy with status 200', () => Promise.resolve(new Response('<html>Log in')), 200, 'the answer does not come from the API', '<html>Log in'],
    ['a refusal', () => Promise.resolve(new Response('{"message":"no room"}', { status: 409 })), 409, 'no room', ''],
  ])('%s → an ApiError that says so', async (_, answer, status, message, detail) => {
    const error = await asked(answer);
    expect(error).toBeInstanceOf(ApiError);
    expect(error).toMatchObject({ status, message: expect.stringContaining(message) as string, detail });
  });
});

describe('pathOf', () => {
  it.each([
    ['https://longhorn-backend:9500/v1/volumes/vol?action=attach', '/v1/volumes/vol?action=attach'],
    ['/v1/volumes', '/v1/volumes'],
  ])('%s → %s', (link, want) => expect(pathOf(link)).toBe(want));
});
