import { describe, expect, it } from 'vitest';
import { volume } from './fixtures';
import { claimText, expansionOf, healthOf, healthText, keptBecause, lacksLocalReplica, latest, localityReason, missing, movesOf } from './volume';

describe('healthOf', () => {
  it.each([
    ['attached', 'healthy', 'healthy'],
    ['attached', 'degraded', 'degraded'],
    ['attached', 'unknown', 'busy'],
    ['attaching', 'unknown', 'busy'],
    ['detached', 'unknown', 'detached'],
    ['detached', 'faulted', 'faulted'],
    ['', 'unknown', 'busy'],
  ])('%s, %s → %s', (state, robustness, want) => expect(healthOf(volume('v', { state, robustness }))).toBe(want));

  it('says what a busy volume does', () => {
    expect(healthText(volume('v', { state: 'detaching' }))).toBe('detaching');
    expect(healthText(volume('v', { state: '' }))).toBe('new');
  });
});

describe('lacksLocalReplica', () => {
  const used = { state: 'attached', dataLocality: 'best-effort', controllers: [{ hostId: 'node-1' }] };
  it.each([
    ['no replica there', { ...used, replicas: [{ hostId: 'node-2', mode: 'RW' }] }, true],
    ['one that is being rebuilt', { ...used, replicas: [{ hostId: 'node-1', mode: 'WO' }] }, true],
    ['a good one', { ...used, replicas: [{ hostId: 'node-1', mode: 'RW' }] }, false],
    ['not asked for', { ...used, dataLocality: 'disabled', replicas: [] }, false],
    ['not used', { ...used, state: 'detached', replicas: [] }, false],
  ])('%s → %s', (_, fields, want) => expect(lacksLocalReplica(volume('v', fields))).toBe(want));

  it('has the reason of the API', () => {
    const condition = { type: 'Scheduled', status: 'True', lastTransitionTime: '', reason: 'LocalReplicaSchedulingFailure', message: 'node-1 has no room' };
    expect(localityReason(volume('v', { conditions: { Scheduled: condition } }))).toBe('node-1 has no room');
    expect(localityReason(volume('v', {}))).toBe('');
  });
});

describe('expansionOf', () => {
  const condition = (status: string, message: string) => ({ Expanded: { type: 'Expanded', status, lastTransitionTime: '', reason: '', message } });
  const grows = { size: '2048', expansionRequired: true, controllers: [{ running: true, size: '1024', lastExpansionError: '' }] };
  it.each([
    ['nothing is asked for', { ...grows, expansionRequired: false }, null],
    ['it goes on', grows, { wanted: 2048, offered: 1024, waits: '' }],
    ['nothing is attached', { ...grows, controllers: [{ running: false, size: '1024' }] }, { wanted: 2048, offered: 0, waits: '' }],
    ['there is no room', { ...grows, conditions: condition('False', 'node-1 lacks 5 bytes') }, { wanted: 2048, offered: 1024, waits: 'node-1 lacks 5 bytes' }],
    ['the last attempt failed', { ...grows, controllers: [{ running: true, size: '1024', lastExpansionError: 'no answer' }] }, { wanted: 2048, offered: 1024, waits: 'no answer' }],
    ['an earlier one was done', { ...grows, conditions: condition('True', 'it has 1024') }, { wanted: 2048, offered: 1024, waits: '' }],
  ])('%s', (_, fields, want) => expect(expansionOf(volume('v', fields))).toEqual(want));
});

describe('movesOf', () => {
  const waits = (type: string, status: string, message: string) => ({ [type]: { type, status, lastTransitionTime: '', reason: '', message } });
  const all = [
    volume('copied', { replicas: [{ name: 'copied-r-1' }, { name: 'copied-r-2' }], rebuildStatus: [{ replica: 'copied-r-2', isRebuilding: true, progress: 40 }] }),
    volume('detached', { replicas: [{ name: 'detached-r-1' }], conditions: waits('EvictionWaits', 'True', 'it is detached') }),
    volume('full', { replicas: [{ name: 'full-r-1' }], conditions: waits('Scheduled', 'False', 'no disk has room') }),
    volume('later', { replicas: [{ name: 'later-r-1' }], conditions: waits('Scheduled', 'True', 'it has a place') }),
    volume('itself', { replicas: [{ name: 'itself-r-1' }], rebuildStatus: [{ replica: 'itself-r-1', isRebuilding: true, progress: 70 }] }),
  ];
  const moves = movesOf({ 'detached-r-1': 1, 'copied-r-1': 2, 'full-r-1': 3, 'later-r-1': 4, 'itself-r-1': 5, 'unknown-r-1': 6 }, all);

  it('has those under way first', () => expect(moves.map((m) => m.replica)).toEqual(['copied-r-1', 'detached-r-1', 'full-r-1', 'itself-r-1', 'later-r-1', 'unknown-r-1']));
  it.each([
    ['copied-r-1', 40, ''],
    ['detached-r-1', null, 'it is detached'],
    ['full-r-1', null, 'no disk has room'],
    ['later-r-1', null, ''],
    ['itself-r-1', null, ''],
    ['unknown-r-1', null, ''],
  ])('%s: %j, %j', (replica, progress, wait) => {
    const move = moves.find((m) => m.replica === replica);
    expect([move?.progress, move?.waits]).toEqual([progress, wait]);
  });
});

describe('latest', () => {
  it('has what is known now, in the order that was asked for, and what was known of those that are gone', () => {
    const got = latest([volume('b'), volume('gone', { size: '7' })], [volume('a'), volume('b', { size: '9' })]);
    expect(got.map((v) => `${v.name} ${v.size}`)).toEqual(['b 9', 'gone 7']);
  });
});

describe('claimText', () => {
  it.each([
    [{ namespace: '', pvcName: '' }, ''],
    [{ namespace: 'shop', pvcName: 'db', pvStatus: 'Bound' }, 'shop/db'],
    [{ namespace: 'shop', pvcName: 'db', lastPVCRefAt: '2030-01-02T03:04:05Z' }, 'shop/db (deleted)'],
  ])('%j → %j', (kubernetesStatus, want) => expect(claimText(volume('v', { kubernetesStatus }))).toBe(want));
});

describe('keptBecause', () => {
  const engine = [{ hostId: 'node-1' }];
  const bound = { pvName: 'pv', pvStatus: 'Bound', namespace: 'shop', pvcName: 'data' };
  it.each([
    ['detached, without a claim', {}, ''],
    ['new', { state: '' }, ''],
    ['faulted, detached', { robustness: 'faulted' }, ''],
    ['its claim is gone', { kubernetesStatus: { ...bound, pvStatus: 'Released' } }, ''],
    ['attached by hand', { state: 'attached', controllers: engine }, 'it is attached to node node-1'],
    ['about to be attached', { state: 'attaching' }, 'it is being attached'],
    ['on its way from a node', { state: 'detaching', controllers: engine }, 'it is being detached from node node-1'],
    ['its claim is bound', { kubernetesStatus: bound }, 'claim shop/data is bound to it'],
    [
      'used by a pod',
      { state: 'attached', controllers: engine, kubernetesStatus: { ...bound, workloadsStatus: [{ podName: 'db-0' }] } },
      'it is attached to node node-1; pod db-0 uses it; claim shop/data is bound to it',
    ],
  ])('%s → %s', (_, fields, want) => expect(keptBecause(volume('v', fields))).toBe(want));
});

describe('missing', () => {
  const one = [{ hostId: 'node-1' }];
  it.each([
    ['all exist', { replicas: [...one, ...one, ...one] }, 0],
    ['one exists, and the API lists no others', { replicas: one }, 2],
    ['one exists, and the API lists one without a place', { replicas: [...one, { hostId: '' }] }, 2],
    ['more than were asked for', { numberOfReplicas: 1, replicas: [...one, ...one] }, 0],
    ['new', { state: '' }, 0],
    ['being deleted', { state: 'deleting' }, 0],
  ])('%s → %i', (_, fields, want) => expect(missing(volume('v', fields))).toBe(want));
});
