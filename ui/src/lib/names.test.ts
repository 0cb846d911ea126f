import { describe, expect, it } from 'vitest';
import { volume } from './fixtures';
import { fullNameOf, objectText, titleOf, withClaim } from './names';

const claim = { namespace: 'default', pvcName: 'data', pvStatus: 'Bound' };
const claimed = volume('pvc-1', { kubernetesStatus: claim });
const plain = volume('archive');

describe('titleOf and fullNameOf', () => {
  it.each([
    ['a claim', claimed, 'default/data', 'default/data (pvc-1)'],
    ['no claim', plain, 'archive', 'archive'],
    ['a claim that was deleted', volume('pvc-1', { kubernetesStatus: { ...claim, lastPVCRefAt: '2030-01-02T03:04:05Z' } }), 'pvc-1', 'pvc-1'],
    ['a PersistentVolume whose claim was deleted just now', volume('pvc-1', { kubernetesStatus: { ...claim, pvStatus: 'Released' } }), 'pvc-1', 'pvc-1'],
  ])('%s', (_, v, title, full) => {
    expect(titleOf(v)).toBe(title);
    expect(fullNameOf(v)).toBe(full);
  });
});

describe('objectText', () => {
  it.each([
    ['volume', 'pvc-1', claimed, 'volume default/data (pvc-1)'],
    ['replica', 'pvc-1-r-1a2b', claimed, 'replica pvc-1-r-1a2b of default/data'],
    ['claim', 'default/data', claimed, 'claim default/data'],
    ['replica', 'archive-r-1a2b', plain, 'replica archive-r-1a2b'],
    ['node', 'node-1', undefined, 'node node-1'],
  ])('%s %s', (kind, name, v, want) => expect(objectText(kind, name, v)).toBe(want));
});

describe('withClaim', () => {
  it.each([
    ['volume pvc-1 is detached', claimed, 'volume default/data (pvc-1) is detached'],
    ['no room for volume pvc-1.', claimed, 'no room for volume default/data (pvc-1).'],
    ['replica pvc-1-r-1 of volume pvc-1: it failed', claimed, 'replica pvc-1-r-1 of volume default/data (pvc-1): it failed'],
    ['replica pvc-1-r-1 cannot grow', claimed, 'default/data: replica pvc-1-r-1 cannot grow'],
    ['the device /dev/longhorn/pvc-1 is in use', claimed, 'default/data: the device /dev/longhorn/pvc-1 is in use'],
    ['volume default/data (pvc-1) is detached', claimed, 'volume default/data (pvc-1) is detached'],
    ['replica pvc-1-r-1 of default/data cannot grow', claimed, 'replica pvc-1-r-1 of default/data cannot grow'],
    ['it waits for volume default/data-2 (pvc-2)', claimed, 'default/data: it waits for volume default/data-2 (pvc-2)'],
    ['volume archive is detached', plain, 'volume archive is detached'],
    ['node node-1 is not ready', undefined, 'node node-1 is not ready'],
  ])('%s', (text, v, want) => expect(withClaim(text, v)).toBe(want));
});
