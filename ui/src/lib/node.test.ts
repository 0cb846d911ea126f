import { describe, expect, it } from 'vitest';
import { disk, node } from './fixtures';
import { clashText, disksWith, disksWithout, readinessOf, rebased, refusals, suggestedName, unreadableNodes, type Asked } from './node';

const n = node('n', { a: disk({ path: '/a', storageAvailable: 5, diskUUID: 'u' }), b: disk({ path: '/b', tags: null }) });
const plain = { diskType: 'filesystem', diskDriver: '', allowScheduling: true, evictionRequested: false, storageReserved: 0, tags: [] };

describe('disks of a change', () => {
  it('leaves no other disk out, for that would remove it', () => {
    expect(disksWith(n, 'c', { ...plain, path: '/c' })).toEqual({ a: { ...plain, path: '/a' }, b: { ...plain, path: '/b' }, c: { ...plain, path: '/c' } });
    expect(disksWith(n, 'a', { ...plain, path: '/a', allowScheduling: false })['b']).toEqual({ ...plain, path: '/b' });
  });
  it('removes one alone', () => expect(Object.keys(disksWithout(n, 'a'))).toEqual(['b']));
});

describe('rebased', () => {
  const base: Asked = { allowScheduling: true, evictionRequested: false, tags: ['a', 'b'], storageReserved: 1 };
  const cases: [string, Partial<Asked>, Partial<Asked>, Partial<Asked>, string[]][] = [
    ['mine alone → as I wish', { tags: ['c'] }, {}, { tags: ['c'] }, []],
    ['others alone → as they wish', {}, { tags: ['c'], storageReserved: 5 }, { tags: ['c'], storageReserved: 5 }, []],
    ['different fields → both', { storageReserved: 9 }, { tags: ['c'], allowScheduling: false }, { storageReserved: 9, tags: ['c'], allowScheduling: false }, []],
    ['the same in the same way → no clash', { tags: ['c', 'd'] }, { tags: ['d', 'c'] }, { tags: ['c', 'd'] }, []],
    ['the same in different ways → a clash, and mine is kept', { tags: ['c'], storageReserved: 2 }, { tags: ['d'] }, { tags: ['c'], storageReserved: 2 }, ['tags']],
    ['tags in another order → not changed', { tags: ['b', 'a'] }, { tags: ['c'] }, { tags: ['c'] }, []],
    ['I empty it, others do so, too → no clash', { evictionRequested: true, allowScheduling: false }, { evictionRequested: true, allowScheduling: false }, { evictionRequested: true, allowScheduling: false }, []],
    ['I empty it, others close it → emptied', { evictionRequested: true, allowScheduling: false }, { allowScheduling: false }, { evictionRequested: true, allowScheduling: false }, []],
    ['I close it, others empty it → a clash', { allowScheduling: false }, { evictionRequested: true, allowScheduling: false }, { allowScheduling: false }, ['evictionRequested']],
  ];
  it.each(cases)('%s', (_, mine, now, value, clashes) => {
    expect(rebased(base, { ...base, ...mine }, { ...base, ...now })).toEqual({ value: { ...base, ...value }, clashes });
  });
  it('takes placing and emptying as one: who empties it while others open it has a clash', () => {
    const closed = { ...base, allowScheduling: false };
    expect(rebased(closed, { ...closed, evictionRequested: true }, { ...closed, allowScheduling: true })).toEqual({ value: { ...closed, evictionRequested: true }, clashes: ['allowScheduling'] });
  });
  it('keeps what nobody changes, as the path', () => {
    expect(rebased(disk({ path: '/old' }), disk({ tags: ['x'] }), disk({ path: '/new', diskUUID: 'u' })).value).toEqual(disk({ path: '/new', diskUUID: 'u', tags: ['x'] }));
  });
});

describe('clashText', () => {
  it('says what each field is now', () => {
    const now = { allowScheduling: false, evictionRequested: true, tags: [], storageReserved: 2 ** 30 };
    expect(clashText('d', now, ['tags', 'storageReserved'])).toBe(
      'd was changed while this form was open: its tags are now empty, and its reserved space is now 1 GiB. Nothing was sent. Save again to overwrite this with the values in the form.',
    );
    expect(clashText('d', now, ['allowScheduling', 'evictionRequested'])).toContain('its scheduling is now disabled, and its eviction is now requested.');
  });
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

describe('readinessOf', () => {
  const down = node('down', {}, { conditions: {} });
  it('is unknown while nodes cannot be read, and not bad', () => expect(readinessOf(undefined, 'n')).toBe('unknown'));
  it('follows the condition of a node that is known', () => {
    expect(readinessOf([n, down], 'n')).toBe('ready');
    expect(readinessOf([n, down], 'down')).toBe('not ready');
  });
  it('is not ready for a node that is gone', () => expect(readinessOf([n], 'gone')).toBe('not ready'));
});

describe('unreadableNodes', () => {
  it('is not said while they are being read', () => expect(unreadableNodes(null)).toBe(''));
  it('says that the account may not', () => expect(unreadableNodes({ status: 403, message: 'x' })).toContain('Your account is not allowed to list nodes'));
  it('gives the cause of a failure', () => expect(unreadableNodes({ status: 0, message: 'no answer' })).toContain('no answer'));
});
