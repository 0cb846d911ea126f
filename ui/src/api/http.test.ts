import { describe, expect, it } from 'vitest';
import { ApiError, errorFrom, pathOf } from './http';

describe('ApiError.field', () => {
  it.each([
    ['size: "x" must be a number', 'size'],
    ['disks.disk-1.path: must be absolute', 'disks'],
    ['nodeSelector[0]: "" is no tag', 'nodeSelector'],
    ['volume "vol": size 5 does not fit', ''],
    ['the token is not valid', ''],
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

describe('pathOf', () => {
  it.each([
    ['https://longhorn-backend:9500/v1/volumes/vol?action=attach', '/v1/volumes/vol?action=attach'],
    ['/v1/volumes', '/v1/volumes'],
  ])('%s → %s', (link, want) => expect(pathOf(link)).toBe(want));
});
