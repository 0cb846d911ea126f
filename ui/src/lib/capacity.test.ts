import { describe, expect, it } from 'vitest';
import { notCountedText, ofCluster, schedulable, takesReplicas } from './capacity';
import { disk, node } from './fixtures';

const conditions = (ready: string, isSchedulable: string) => ({ Ready: { status: ready }, Schedulable: { status: isSchedulable } }) as never;

const nodes = [
  node('a', { d: disk({ storageMaximum: 100, storageAvailable: 60, storageReserved: 10, storageScheduled: 50 }) }),
  node('b', { d: disk({ storageMaximum: 200, storageAvailable: 200, storageScheduled: 0, allowScheduling: false }) }),
  node('c', { d: disk({ storageMaximum: 100, storageAvailable: 100 }) }, { evictionRequested: true }),
];
const down = node('down', { d: disk({ storageMaximum: 1000, storageAvailable: 900 }), e: disk({ storageMaximum: 1000 }) }, { conditions: conditions('False', 'True') });
const cordoned = node('cordoned', { d: disk({ storageMaximum: 100, storageAvailable: 100 }) }, { conditions: conditions('True', 'False') });
const half = node('half', { good: disk({ storageMaximum: 10, storageAvailable: 10 }), bad: disk({ storageMaximum: 500, conditions: conditions('False', 'False') }) });

describe('capacity', () => {
  it('adds up all disks', () => expect(ofCluster(nodes)).toEqual({ total: 400, reserved: 10, used: 40, available: 360, scheduled: 50, notCounted: 0 }));
  it('leaves out the disks of a node that is not ready, and counts them', () => expect(ofCluster([...nodes, down])).toMatchObject({ total: 400, available: 360, notCounted: 2 }));
  it('leaves out a disk that is not ready', () => expect(ofCluster([half])).toMatchObject({ total: 10, available: 10, notCounted: 1 }));
  it('counts the disks of a cordoned node', () => expect(ofCluster([cordoned])).toMatchObject({ total: 100, notCounted: 0 }));
  it('has room on disks that take replicas alone', () => expect(schedulable([...nodes, down, cordoned], 100)).toBe(40));
  it('may promise more than there is', () => expect(schedulable(nodes, 200)).toBe(130));
  it('never has less than none', () => expect(schedulable(nodes, 10)).toBe(0));
});

describe('takesReplicas', () => {
  const d = disk();
  it.each([
    ['all is well', node('n', { d }), true],
    ['the node is cordoned', node('n', { d }, { conditions: conditions('True', 'False') }), false],
    ['the node is not ready', node('n', { d }, { conditions: conditions('False', 'True') }), false],
    ['the node is silent about both', node('n', { d }, { conditions: {} }), false],
    ['scheduling is disabled on the node', node('n', { d }, { allowScheduling: false }), false],
  ])('%s → %s', (_, n, want) => expect(takesReplicas(n, d)).toBe(want));
});

describe('notCountedText', () => {
  it('is empty if all are counted', () => expect(notCountedText(0)).toBe(''));
  it('says how many are not', () => {
    expect(notCountedText(1)).toContain('1 disk that is not ready');
    expect(notCountedText(3)).toContain('3 disks that are not ready');
  });
});
