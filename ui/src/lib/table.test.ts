import { describe, expect, it } from 'vitest';
import { volume } from './fixtures';
import { countByHealth, filtered, pruned, sorted, toggled } from './table';

const list = [
  volume('vol-10', { size: '1073741824', state: 'attached', robustness: 'healthy', controllers: [{ hostId: 'node-b' }] }),
  volume('vol-2', { size: '3221225472', state: 'attached', robustness: 'degraded', controllers: [{ hostId: 'node-a' }] }),
  volume('data', { size: '1073741824', state: 'detached', robustness: 'unknown' }),
  volume('lost', { size: '1', state: 'detached', robustness: 'faulted' }),
  volume('going', { size: '2', state: 'attaching', robustness: 'unknown' }),
];
const names = (volumes: { name: string }[]) => volumes.map((v) => v.name);

describe('sorted', () => {
  it('counts the numbers in names', () => expect(names(sorted(list, { column: 'name', descending: false }))).toEqual(['data', 'going', 'lost', 'vol-2', 'vol-10']));
  it('orders sizes as numbers, equal ones by name', () => expect(names(sorted(list, { column: 'size', descending: true }))).toEqual(['vol-2', 'data', 'vol-10', 'going', 'lost']));
  it('takes the claim for the name where there is one, then the name of the volume', () => {
    const of = (name: string, pvcName: string) => volume(name, { kubernetesStatus: { namespace: 'shop', pvcName } });
    const claimed = [of('pvc-1', 'db-10'), of('pvc-2', 'db-2'), volume('tools'), volume('archive'), of('pvc-4', 'db-2'), of('pvc-3', 'db-2')];
    expect(names(sorted(claimed, { column: 'name', descending: false }))).toEqual(['archive', 'pvc-2', 'pvc-3', 'pvc-4', 'pvc-1', 'tools']);
    expect(names(sorted(claimed, { column: 'size', descending: false }))).toEqual(['archive', 'pvc-2', 'pvc-3', 'pvc-4', 'pvc-1', 'tools']);
  });
  it('has the worst health first', () => expect(names(sorted(list, { column: 'health', descending: false }))).toEqual(['lost', 'vol-2', 'going', 'vol-10', 'data']));
  it('leaves the list as it was', () => {
    sorted(list, { column: 'size', descending: false });
    expect(list[0]?.name).toBe('vol-10');
  });
});

describe('filtered', () => {
  it.each([
    ['', 'all', ['vol-10', 'vol-2', 'data', 'lost', 'going']],
    ['VOL', 'all', ['vol-10', 'vol-2']],
    ['vol node-a', 'all', ['vol-2']],
    ['', 'degraded', ['vol-2']],
    ['data', 'degraded', []],
  ] as const)('%j, %s', (text, health, want) => expect(names(filtered(list, { text, health }))).toEqual(want));

  it('finds by claim and pod', () => {
    const used = volume('pvc-1', { kubernetesStatus: { namespace: 'shop', pvcName: 'db', workloadsStatus: [{ podName: 'mysql-0' }] } });
    expect(names(filtered([used, ...list], { text: 'shop/db', health: 'all' }))).toEqual(['pvc-1']);
    expect(names(filtered([used, ...list], { text: 'mysql', health: 'all' }))).toEqual(['pvc-1']);
    expect(names(filtered([used, ...list], { text: 'pvc-1', health: 'all' }))).toEqual(['pvc-1']);
  });

  it('finds by a claim that was deleted', () => {
    const kept = volume('pvc-1', { kubernetesStatus: { namespace: 'shop', pvcName: 'db', lastPVCRefAt: '2030-01-02T03:04:05Z' } });
    expect(names(filtered([kept, ...list], { text: 'shop/db', health: 'all' }))).toEqual(['pvc-1']);
  });
});

describe('countByHealth', () => {
  it('counts each volume once', () => expect(countByHealth(list)).toEqual({ faulted: 1, degraded: 1, busy: 1, healthy: 1, detached: 1 }));
});

describe('toggled', () => {
  it('adds or removes a name, and leaves the set as it was', () => {
    const selected = new Set(['a']);
    expect([...toggled(selected, 'b', true)]).toEqual(['a', 'b']);
    expect([...toggled(selected, 'a', false)]).toEqual([]);
    expect([...selected]).toEqual(['a']);
  });
});

describe('pruned', () => {
  const volumes = [volume('a'), volume('b')];
  it('forgets volumes that are gone', () => expect([...pruned(new Set(['a', 'gone']), volumes)]).toEqual(['a']));
  it('is the same set while all are there', () => {
    const selected = new Set(['a', 'b']);
    expect(pruned(selected, volumes)).toBe(selected);
  });
});
