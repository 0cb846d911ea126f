// The state of a volume, as derived from the fields of the API.

import type { RebuildStatus, Replica, Volume } from '../api/types';
import { sizeOf } from './format';
import type { Tone } from './tone';

// unset is the text for a field without a value: the manager sets it later, or treats it as the default value.
export const unset = 'not set';

// Health is the state of a volume in the words of users: first the state of its data, then its current activity.
export type Health = 'faulted' | 'degraded' | 'busy' | 'healthy' | 'detached';

export const healths: readonly Health[] = ['faulted', 'degraded', 'busy', 'healthy', 'detached'];

export function healthOf(v: Volume): Health {
  if (v.robustness === 'faulted' || v.robustness === 'degraded') return v.robustness;
  if (v.state === 'attached') return v.robustness === 'healthy' ? 'healthy' : 'busy';
  return v.state === 'detached' ? 'detached' : 'busy';
}

export function toneOf(v: Volume): Tone {
  const tones: Record<Health, Tone> = { faulted: 'bad', degraded: 'warn', busy: 'busy', healthy: 'good', detached: 'idle' };
  return tones[healthOf(v)];
}

// healthText is the text in the table. It includes the state if the health does not say it.
export function healthText(v: Volume): string {
  const health = healthOf(v);
  if (health === 'busy') return v.state === '' ? 'new' : v.state;
  return health;
}

// nodeOf returns the node to which the volume is attached. It is empty if the volume is attached to no node.
export function nodeOf(v: Volume): string {
  return v.controllers?.find((c) => c.hostId !== '')?.hostId ?? '';
}

// actualSizeOf returns the space that the largest replica uses, in bytes.
export function actualSizeOf(v: Volume): number {
  return Math.max(0, ...(v.controllers ?? []).map((c) => sizeOf(c.actualSize)));
}

export function isGood(r: Replica): boolean {
  return r.mode === 'RW';
}

// placed returns the replicas that exist. For a volume that was never used, the API also lists replicas that have no
// place yet, without a node.
export function placed(v: Volume): Replica[] {
  return (v.replicas ?? []).filter((r) => r.hostId !== '');
}

// missing returns the number of requested replicas that do not exist. It is 0 for a volume that is being created or
// deleted, because the number is not known then.
export function missing(v: Volume): number {
  return v.state === '' || v.state === 'creating' || v.state === 'deleting' ? 0 : Math.max(0, v.numberOfReplicas - placed(v).length);
}

// lacksLocalReplica returns whether a best-effort volume has no healthy replica on the node where it is attached.
export function lacksLocalReplica(v: Volume): boolean {
  const node = nodeOf(v);
  return v.dataLocality === 'best-effort' && v.state === 'attached' && node !== '' && !placed(v).some((r) => r.hostId === node && isGood(r));
}

// localReplica explains the term "local replica" in the choices of data locality.
export const localReplica = 'A local replica is on the node where the volume is attached.';

// localReplicaFollows is the text that is shown while the API gives no reason.
export const localReplicaFollows = 'Longhorn creates one when a disk of the node has enough space';

// localityReason returns the API's text about a missing local replica. It is empty if the API gives none.
export function localityReason(v: Volume): string {
  const c = v.conditions['Scheduled'];
  return c !== undefined && c.reason.startsWith('LocalReplica') ? c.message : '';
}

// rebuilds returns the rebuilds that are running.
export function rebuilds(v: Volume): RebuildStatus[] {
  return (v.rebuildStatus ?? []).filter((r) => r.isRebuilding);
}

// lastClaimOf returns namespace/name of the claim that uses a volume, or that used it last. It is empty if there never
// was a claim.
export function lastClaimOf(v: Volume): string {
  const k = v.kubernetesStatus;
  return k.pvcName === '' ? '' : `${k.namespace}/${k.pvcName}`;
}

// isClaimGone returns whether the claim that lastClaimOf names was deleted. Another volume may have a claim of the same
// name now.
export function isClaimGone(v: Volume): boolean {
  const k = v.kubernetesStatus;
  return lastClaimOf(v) !== '' && ((k.lastPVCRefAt ?? '') !== '' || k.pvStatus === 'Released');
}

// claimOf returns namespace/name of the claim that uses a volume now. It is empty if there is no claim.
export function claimOf(v: Volume): string {
  return isClaimGone(v) ? '' : lastClaimOf(v);
}

// claimText returns the claim of a volume as the page shows it. It is empty if there never was a claim.
export function claimText(v: Volume): string {
  return isClaimGone(v) ? `${lastClaimOf(v)} (deleted)` : claimOf(v);
}

export function podsOf(v: Volume): string[] {
  return (v.kubernetesStatus.workloadsStatus ?? []).map((w) => w.podName);
}

// keptBecause returns the reason why the API refuses to delete a volume now. It is empty if the volume can be deleted.
// The API has the same rule, and decides.
export function keptBecause(v: Volume): string {
  const reasons: string[] = [];
  if (v.state === 'attached' || v.state === 'attaching' || v.state === 'detaching' || nodeOf(v) !== '') {
    const is = v.state === 'attaching' || v.state === 'detaching' ? `is being ${v.state === 'attaching' ? 'attached' : 'detached'}` : 'is attached';
    const node = nodeOf(v);
    const to = v.state === 'detaching' ? 'from' : 'to';
    reasons.push(node === '' ? `it ${is}` : `it ${is} ${to} node ${node}`);
  }
  const pods = podsOf(v);
  if (pods.length > 0) reasons.push(pods.length === 1 ? `pod ${pods.join('')} uses it` : `pods ${pods.join(', ')} use it`);
  if (v.kubernetesStatus.pvStatus === 'Bound') reasons.push(`claim ${lastClaimOf(v)} is bound to it`);
  return reasons.join('; ');
}

// isInUse returns whether pods use the volume.
export function isInUse(v: Volume): boolean {
  return podsOf(v).length > 0;
}

// Expansion is a requested size that users do not get yet. Sizes are in bytes. offered is 0 while the volume
// is not attached.
export interface Expansion {
  wanted: number;
  offered: number;
  // waits is the API's text about what delays the expansion. It is empty while the expansion makes progress.
  waits: string;
}

export function expansionOf(v: Volume): Expansion | null {
  if (v.expansionRequired !== true) return null;
  const engine = v.controllers?.find((c) => c.running);
  const held = v.conditions['Expanded'];
  const said = held !== undefined && held.status !== 'True' ? held.message : '';
  return { wanted: sizeOf(v.size), offered: sizeOf(engine?.size), waits: said !== '' ? said : (engine?.lastExpansionError ?? '') };
}

// Move is a replica that must leave its disk, and the progress of its volume.
export interface Move {
  replica: string;
  bytes: number;
  // volume is null if the volume is not known.
  volume: Volume | null;
  // progress of the replica that replaces this one, in percent. It is null while there is no such replica.
  progress: number | null;
  // waits is the API's text about what delays the volume's replicas. It is empty if no reason is known.
  waits: string;
}

// movesOf returns the moves away from a disk with these replicas (sizes by name). Running moves come first.
export function movesOf(scheduled: Record<string, number>, volumes: readonly Volume[]): Move[] {
  const moves = Object.entries(scheduled).map(([replica, bytes]): Move => {
    const volume = volumes.find((v) => (v.replicas ?? []).some((r) => r.name === replica)) ?? null;
    const copies = volume === null ? [] : rebuilds(volume).filter((r) => r.replica !== replica);
    return { replica, bytes, volume, progress: copies.length === 0 ? null : Math.min(...copies.map((r) => r.progress)), waits: volume === null || copies.length > 0 ? '' : waitsFor(volume) };
  });
  return moves.sort((a, b) => (b.progress ?? -1) - (a.progress ?? -1) || a.replica.localeCompare(b.replica));
}

// waitsFor returns the reason why replicas of a volume do not move: the volume is detached, no disk can take another
// replica, or the device is in use.
function waitsFor(v: Volume): string {
  const failing: [string, string][] = [['EvictionWaits', 'True'], ['Scheduled', 'False'], ['DeviceInUse', 'True']];
  for (const [type, status] of failing) {
    const c = v.conditions[type];
    if (c !== undefined && c.status === status && c.message !== '') return c.message;
  }
  return '';
}

// latest returns the volumes in their current state. A volume that no longer exists is returned in its last known
// state.
export function latest(volumes: readonly Volume[], live: readonly Volume[]): Volume[] {
  const now = new Map(live.map((v) => [v.name, v]));
  return volumes.map((v) => now.get(v.name) ?? v);
}
