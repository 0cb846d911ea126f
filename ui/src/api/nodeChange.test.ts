import { describe, expect, it } from 'vitest';
import { node } from '../lib/fixtures';
import { ApiError, type request } from './http';
import { changeNode } from './nodeChange';

const asked = { allowScheduling: false, evictionRequested: false, tags: ['a'] };

// api answers each GET with the next version of the node, and each change with the next of `refusals`.
function api(versions: (string | undefined)[], refusals: ApiError[] = []) {
  const sent: string[] = [];
  const send = ((method: string, link: string, body?: unknown) => {
    if (method === 'GET') return Promise.resolve(node('n', {}, { specVersion: versions.length > 1 ? versions.shift() : versions[0] }));
    sent.push(`${method} ${link} ${JSON.stringify(body)}`);
    const refusal = refusals.shift();
    return refusal ? Promise.reject(refusal) : Promise.resolve(undefined);
  }) as typeof request;
  return { sent, send };
}

describe('changeNode', () => {
  const changed = () => new ApiError(412, 'Precondition Failed', 'node "n" was changed');
  it('asks for the change of the version that it read', async () => {
    const { sent, send } = api(['v1']);
    await changeNode('n', () => ({ node: asked }), send, 0);
    await changeNode('n', () => ({ disks: {} }), send, 0);
    expect(sent).toEqual([`PUT /v1/nodes/n?ifSpecVersion=v1 ${JSON.stringify(asked)}`, 'POST /v1/nodes/n?action=diskUpdate&ifSpecVersion=v1 {"disks":{}}']);
  });
  it('makes the change anew of a node that was changed in between', async () => {
    const { sent, send } = api(['v1', 'v1', 'v2'], [changed(), changed()]);
    const seen: (string | undefined)[] = [];
    await changeNode('n', (now) => (seen.push(now.specVersion), { disks: {} }), send, 0);
    expect(seen).toEqual(['v1', 'v1', 'v2']);
    expect(sent[2]).toContain('ifSpecVersion=v2');
  });
  it('gives up in the end', async () => {
    const { sent, send } = api(['v1'], Array.from({ length: 9 }, changed));
    await expect(changeNode('n', () => ({ disks: {} }), send, 0)).rejects.toMatchObject({ status: 412 });
    expect(sent).toHaveLength(5);
  });
  it('sends what is refused for another reason once', async () => {
    const { sent, send } = api(['v1'], [new ApiError(409, 'Conflict', 'disable the disk first')]);
    await expect(changeNode('n', () => ({ disks: {} }), send, 0)).rejects.toMatchObject({ status: 409 });
    expect(sent).toHaveLength(1);
  });
  it('sends no version to a daemon that has none', async () => {
    const { sent, send } = api([undefined]);
    await changeNode('n', () => ({ disks: {} }), send, 0);
    expect(sent).toEqual(['POST /v1/nodes/n?action=diskUpdate {"disks":{}}']);
  });
  it('sends nothing when nothing is left to do, or people must look first', async () => {
    const { sent, send } = api(['v1']);
    await changeNode('n', () => null, send, 0);
    const look = () => {
      throw new ApiError(0, 'Conflict', 'look');
    };
    await expect(changeNode('n', look, send, 0)).rejects.toMatchObject({ message: 'look' });
    expect(sent).toEqual([]);
  });
});
