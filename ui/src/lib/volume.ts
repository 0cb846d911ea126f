// What is concluded from a volume as the API shows it.

import type { RebuildStatus, Replica, Volume } from '../api/types';
import type { Tone } from '../components/Badge';
import { sizeOf } from './format';

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

// placed are the replicas that exist; the API adds one without a node for each that is wanted and has no place.
export function placed(v: Volume): Replica[] {
  return (v.replicas ?? []).filter((r) => r.hostId !== '');
}

// lacksLocalReplica: it should be read from its own node, as best it can be, and is not.
export function lacksLocalReplica(v: Volume): boolean {
  const node = nodeOf(v);
  return v.dataLocality === 'best-effort' && v.state === 'attached' && node !== '' && !placed(v).some((r) => r.hostId === node && isGood(r));
}

// localityReason is what the API says of a local replica that is missing; empty if it says nothing.
export function localityReason(v: Volume): string {
  const c = v.conditions['Scheduled'];
  return c !== undefined && c.reason.startsWith('LocalReplica') ? c.message : '';
}

// rebuilds are those under way.
export function rebuilds(v: Volume): RebuildStatus[] {
  return (v.rebuildStatus ?? []).filter((r) => r.isRebuilding);
}

// claimOf is namespace/name of the claim that uses a volume; empty if there is none.
export function claimOf(v: Volume): string {
  const k = v.kubernetesStatus;
  return k.pvcName === '' ? '' : `${k.namespace}/${k.pvcName}`;
}

export function podsOf(v: Volume): string[] {
  return (v.kubernetesStatus.workloadsStatus ?? []).map((w) => w.podName);
}

// isInUse: a workload has it.
export function isInUse(v: Volume): boolean {
  return podsOf(v).length > 0;
}
