import { describe, expect, it } from 'vitest';
import { volume } from './fixtures';
import { healthOf, healthText, lacksLocalReplica, localityReason } from './volume';

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
