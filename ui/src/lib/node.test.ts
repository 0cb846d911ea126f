import { describe, expect, it } from 'vitest';
import { disk, node } from './fixtures';
import { disksWith, disksWithout, refusals, suggestedName } from './node';

const n = node('n', { a: disk({ path: '/a', storageAvailable: 5, diskUUID: 'u' }), b: disk({ path: '/b', tags: null }) });
const plain = { diskType: 'filesystem', diskDriver: '', allowScheduling: true, evictionRequested: false, storageReserved: 0, tags: [] };

describe('disks of a change', () => {
  it('leaves no other disk out, for that would remove it', () => {
    expect(disksWith(n, 'c', { ...plain, path: '/c' })).toEqual({ a: { ...plain, path: '/a' }, b: { ...plain, path: '/b' }, c: { ...plain, path: '/c' } });
    expect(disksWith(n, 'a', { ...plain, path: '/a', allowScheduling: false })['b']).toEqual({ ...plain, path: '/b' });
  });
  it('removes one alone', () => expect(Object.keys(disksWithout(n, 'a'))).toEqual(['b']));
});

describe('suggestedName', () => {
  it('is not taken', () => {
    const rolls = [0, 0, 0, 0, 0, 0.1, 0, 0, 0, 0];
    expect(suggestedName(['disk-aaaaa'], () => rolls.shift() ?? 0)).toBe('disk-daaaa');
  });
  it('is a name that the API takes', () => expect(suggestedName([])).toMatch(/^disk-[a-z0-9]{5}$/));
});

describe('refusals', () => {
  it('are of annotations that were not taken', () => {
    const c = (type: string, status: string, message: string) => ({ type, status, message, reason: '', lastTransitionTime: '' });
    const bad = c('DefaultDisksConfig', 'False', 'line 2: path must be absolute');
    expect(refusals(node('n', {}, { conditions: { DefaultDisksConfig: bad, DefaultNodeTags: c('DefaultNodeTags', 'True', ''), Ready: c('Ready', 'False', 'x') } }))).toEqual([bad]);
  });
});
