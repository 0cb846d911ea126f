// What is concluded from a volume as the API shows it.

import type { RebuildStatus, Replica, Volume } from '../api/types';
import type { Tone } from '../components/Badge';
import { sizeOf } from './format';

// unset stands for a field that nothing has been written to yet: the manager fills it, or treats it as the usual value.
export const unset = 'not set';

// Health is what users call a volume's state: that of its data first, then what it does.
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

// healthText is the word for the table: the state too, where the health does not say it.
export function healthText(v: Volume): string {
  const health = healthOf(v);
  if (health === 'busy') return v.state === '' ? 'new' : v.state;
  return health;
}

// nodeOf is where a volume is used; empty while it is nowhere.
export function nodeOf(v: Volume): string {
  return v.controllers?.find((c) => c.hostId !== '')?.hostId ?? '';
}

// actualSizeOf is what the largest copy takes up, in bytes.
export function actualSizeOf(v: Volume): number {
  return Math.max(0, ...(v.controllers ?? []).map((c) => sizeOf(c.actualSize)));
}

export function isGood(r: Replica): boolean {
  return r.mode === 'RW';
}

// placed are the replicas that exist; of a volume that was never used, the API adds one without a node for each that has no place.
export function placed(v: Volume): Replica[] {
  return (v.replicas ?? []).filter((r) => r.hostId !== '');
}

// missing is how many replicas are asked for and do not exist. Of a volume that is new or going it is not known.
export function missing(v: Volume): number {
  return v.state === '' || v.state === 'creating' || v.state === 'deleting' ? 0 : Math.max(0, v.numberOfReplicas - placed(v).length);
}

// lacksLocalReplica: it should be read from its own node, as best it can be, and is not.
export function lacksLocalReplica(v: Volume): boolean {
  const node = nodeOf(v);
  return v.dataLocality === 'best-effort' && v.state === 'attached' && node !== '' && !placed(v).some((r) => r.hostId === node && isGood(r));
}

// localReplica explains the word in the choices of data locality.
export const localReplica = 'A local replica is on the node where the volume is attached.';

// localReplicaFollows is said while the API gives no reason.
export const localReplicaFollows = 'Longhorn creates one when a disk of the node has enough space';

// localityReason is what the API says of a local replica that is missing; empty if it says nothing.
export function localityReason(v: Volume): string {
  const c = v.conditions['Scheduled'];
  return c !== undefined && c.reason.startsWith('LocalReplica') ? c.message : '';
}

// rebuilds are those under way.
export function rebuilds(v: Volume): RebuildStatus[] {
  return (v.rebuildStatus ?? []).filter((r) => r.isRebuilding);
}

// lastClaimOf is namespace/name of the claim that uses a volume, or used it last; empty if there never was one.
export function lastClaimOf(v: Volume): string {
  const k = v.kubernetesStatus;
  return k.pvcName === '' ? '' : `${k.namespace}/${k.pvcName}`;
}

// isClaimGone: the claim that lastClaimOf names was deleted. Another volume may have a claim of the same name now.
export function isClaimGone(v: Volume): boolean {
  const k = v.kubernetesStatus;
  return lastClaimOf(v) !== '' && ((k.lastPVCRefAt ?? '') !== '' || k.pvStatus === 'Released');
}

// claimOf is namespace/name of the claim that uses a volume now; empty if there is none.
export function claimOf(v: Volume): string {
  return isClaimGone(v) ? '' : lastClaimOf(v);
}

// claimText is the claim of a volume as the page shows it; empty if there never was one.
export function claimText(v: Volume): string {
  return isClaimGone(v) ? `${lastClaimOf(v)} (deleted)` : claimOf(v);
}

export function podsOf(v: Volume): string[] {
  return (v.kubernetesStatus.workloadsStatus ?? []).map((w) => w.podName);
}

// keptBecause is why the API refuses to delete a volume now; empty: it does not. The API has the same rule and decides.
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

// isInUse: a workload has it.
export function isInUse(v: Volume): boolean {
  return podsOf(v).length > 0;
}

// Expansion is a size that was asked for and that users do not get yet. Sizes in bytes; offered is 0 while nothing is attached.
export interface Expansion {
  wanted: number;
  offered: number;
  // waits is what holds it up, in the API's words; empty while it goes on.
  waits: string;
}

export function expansionOf(v: Volume): Expansion | null {
  if (v.expansionRequired !== true) return null;
  const engine = v.controllers?.find((c) => c.running);
  const held = v.conditions['Expanded'];
  const said = held !== undefined && held.status !== 'True' ? held.message : '';
  return { wanted: sizeOf(v.size), offered: sizeOf(engine?.size), waits: said !== '' ? said : (engine?.lastExpansionError ?? '') };
}

// Move is a replica that is to leave its disk, and how far its volume has got with that.
export interface Move {
  replica: string;
  bytes: number;
  // volume is null if it is not known.
  volume: Volume | null;
  // progress of the copy that takes the replica's place, in percent; null while there is none.
  progress: number | null;
  // waits is what holds the volume's replicas up, in the API's words; empty if nothing is known to.
  waits: string;
}

// movesOf are the moves off a disk with these replicas (sizes by name): those under way first.
export function movesOf(scheduled: Record<string, number>, volumes: readonly Volume[]): Move[] {
  const moves = Object.entries(scheduled).map(([replica, bytes]): Move => {
    const volume = volumes.find((v) => (v.replicas ?? []).some((r) => r.name === replica)) ?? null;
    const copies = volume === null ? [] : rebuilds(volume).filter((r) => r.replica !== replica);
    return { replica, bytes, volume, progress: copies.length === 0 ? null : Math.min(...copies.map((r) => r.progress)), waits: volume === null || copies.length > 0 ? '' : waitsFor(volume) };
  });
  return moves.sort((a, b) => (b.progress ?? -1) - (a.progress ?? -1) || a.replica.localeCompare(b.replica));
}

// waitsFor is why replicas of a volume do not move: it is detached, there is no place for another one, or its device is in use.
function waitsFor(v: Volume): string {
  const failing: [string, string][] = [['EvictionWaits', 'True'], ['Scheduled', 'False'], ['DeviceInUse', 'True']];
  for (const [type, status] of failing) {
    const c = v.conditions[type];
    if (c !== undefined && c.status === status && c.message !== '') return c.message;
  }
  return '';
}

// latest are volumes as they are now; one that is gone, as it was.
export function latest(volumes: readonly Volume[], live: readonly Volume[]): Volume[] {
  const now = new Map(live.map((v) => [v.name, v]));
  return volumes.map((v) => now.get(v.name) ?? v);
}
