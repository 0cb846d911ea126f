import { describe, expect, it } from 'vitest';
import { ApiError } from '../api/http';
import { Batch, errorOfMany, type Item, type Progress } from './batch';

const refusal = new ApiError(409, 'Conflict', 'it is attached');

// items returns changes that request this number of replicas.
function items(names: string, count = 2): Item[] {
  return names.split('').map((name) => ({ name, title: `shop/${name} (${name})`, change: { method: 'POST', link: `/v1/volumes/${name}?action=updateReplicaCount`, body: { replicaCount: count } } }));
}

// bench is a batch with a fake API. The API answers the change of a volume with the volume's error in errors, if there
// is one. It calls during for each change.
function bench(errors: Record<string, ApiError> = {}, during: (name: string) => void = () => undefined) {
  const sent: string[] = [];
  const progress: Progress[] = [];
  const batch = new Batch(
    ({ link }) => {
      const name = /volumes\/(.)/.exec(link)?.[1] ?? '';
      sent.push(name);
      during(name);
      const error = errors[name];
      return error === undefined ? Promise.resolve() : Promise.reject(error);
    },
    (p) => progress.push(p),
  );
  const run = (list: Item[]) => batch.run(list).then(() => null, (error: unknown) => error as ApiError);
  return { batch, sent, progress, run, errors };
}

describe('Batch', () => {
  it('changes all, and says how far it is', async () => {
    const b = bench();
    expect(await b.run(items('abc'))).toBeNull();
    expect(b.sent).toEqual(['a', 'b', 'c']);
    expect(b.progress.map((p) => `${p.tried}/${p.total}`)).toEqual(['0/3', '1/3', '2/3', '3/3']);
  });

  it('goes on after a refusal, and asks again for what is not done alone', async () => {
    const b = bench({ b: refusal });
    const error = await b.run(items('abc'));
    expect([error?.status, error?.message, error?.detail]).toEqual([409, '1 of 3 volumes failed', 'shop/b (b): it is attached']);
    delete b.errors['b'];
    expect(await b.run(items('abc'))).toBeNull();
    expect(b.sent).toEqual(['a', 'b', 'c', 'b']);
    expect(b.progress.at(-1)).toEqual({ tried: 3, total: 3, isStopping: false });
  });

  it('makes another change to those that had one', async () => {
    const b = bench({ b: refusal });
    await b.run(items('ab', 2));
    await b.run(items('ab', 3));
    expect(b.sent).toEqual(['a', 'b', 'a', 'b']);
  });

  it('knows a change by what is asked for, not by how the API names its link', async () => {
    const b = bench({ b: refusal });
    await b.run(items('ab'));
    await b.run(items('ab').map((i) => ({ ...i, change: { ...i.change, link: `https://longhorn-backend:9500${i.change.link}` } })));
    expect(b.sent).toEqual(['a', 'b', 'b']);
  });

  it('stops after the one that is under way, and goes on from there', async () => {
    const b = bench({}, (name) => name === 'b' && b.sent.length < 3 && b.batch.stop());
    const error = await b.run(items('abcd'));
    expect([error?.status, error?.code, error?.message]).toEqual([0, 'Stopped', '2 of 4 are done, 2 skipped']);
    expect(await b.run(items('abcd'))).toBeNull();
    expect(b.sent).toEqual(['a', 'b', 'c', 'd']);
  });

  it.each([
    ['the connection', new ApiError(0, 'No answer', 'no')],
    ['the login', new ApiError(401, 'Unauthorized', 'no')],
  ])('leaves the others out when %s is gone', async (_, error) => {
    const b = bench({ b: error });
    expect((await b.run(items('abcd')))?.message).toBe('1 of 4 volumes failed; 1 of 4 are done, 2 skipped');
    expect(b.sent).toEqual(['a', 'b']);
  });

  it('has deleted what is gone', async () => {
    const b = bench({ a: new ApiError(404, 'Not Found', 'no volume') });
    expect(await b.run([{ name: 'a', title: 'a', change: { method: 'DELETE', link: '/v1/volumes/a' } }])).toBeNull();
    expect((await b.run(items('a')))?.status).toBe(404);
  });

  it('throws what is no answer of the API', async () => {
    const bug = new Error('BUG');
    const batch = new Batch(() => Promise.reject(bug), () => undefined);
    await expect(batch.run(items('a'))).rejects.toBe(bug);
  });
});

describe('errorOfMany', () => {
  it("is the API's own for one volume: it may name a field", () => expect(errorOfMany([{ title: 'a', error: refusal }], 0, 1)).toBe(refusal));
});
