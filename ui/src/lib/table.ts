// Searching, filtering and sorting the volumes of a table.

import type { Volume } from '../api/types';
import { sizeOf } from './format';
import { titleOf } from './names';
import { actualSizeOf, healthOf, healths, lastClaimOf, nodeOf, podsOf, type Health } from './volume';

export type ColumnId = 'name' | 'health' | 'size' | 'actual' | 'replicas' | 'node' | 'claim' | 'pods' | 'locality' | 'access' | 'created';

type Key = string | number;

const keys: Record<ColumnId, (v: Volume) => Key> = {
  name: titleOf,
  health: (v) => healths.indexOf(healthOf(v)),
  size: (v) => sizeOf(v.size),
  actual: actualSizeOf,
  replicas: (v) => v.numberOfReplicas,
  node: nodeOf,
  claim: lastClaimOf,
  pods: (v) => podsOf(v).join(' '),
  locality: (v) => v.dataLocality,
  access: (v) => v.accessMode,
  created: (v) => v.created,
};

export interface Sort {
  column: ColumnId;
  descending: boolean;
}

// sorted sorts by a column. Equal rows are sorted by the text of the first column: the claim, then the volume's name.
// Numbers in names count as numbers: vol-2 comes before vol-10.
export function sorted(volumes: readonly Volume[], sort: Sort): Volume[] {
  const key = keys[sort.column];
  const collator = new Intl.Collator(undefined, { numeric: true });
  const compare = (a: Key, b: Key) => (typeof a === 'number' && typeof b === 'number' ? a - b : collator.compare(String(a), String(b)));
  const sign = sort.descending ? -1 : 1;
  return volumes
    .map((v) => ({ v, key: key(v) }))
    .sort((a, b) => sign * compare(a.key, b.key) || collator.compare(titleOf(a.v), titleOf(b.v)) || collator.compare(a.v.name, b.v.name))
    .map(({ v }) => v);
}

export interface Filter {
  text: string;
  health: Health | 'all';
}

// filtered keeps the volumes that contain every word of the text in their name, claim, pods or nodes.
export function filtered(volumes: readonly Volume[], filter: Filter): Volume[] {
  const words = filter.text.toLowerCase().split(/\s+/).filter((w) => w !== '');
  return volumes.filter((v) => {
    if (filter.health !== 'all' && healthOf(v) !== filter.health) return false;
    if (words.length === 0) return true;
    const hay = [v.name, lastClaimOf(v), ...podsOf(v), nodeOf(v), ...(v.replicas ?? []).map((r) => r.hostId)].join(' ').toLowerCase();
    return words.every((w) => hay.includes(w));
  });
}

// pruned keeps the names of existing volumes. Otherwise, a volume that is created later with the name of a deleted
// volume would be selected. It returns the same set if all volumes exist.
export function pruned(selected: Set<string>, volumes: readonly Volume[]): Set<string> {
  const there = new Set(volumes.map((v) => v.name));
  const kept = [...selected].filter((name) => there.has(name));
  return kept.length === selected.size ? selected : new Set(kept);
}

// toggled returns a selection with a name added or removed.
export function toggled(selected: ReadonlySet<string>, name: string, on: boolean): Set<string> {
  const next = new Set(selected);
  if (on) next.add(name);
  else next.delete(name);
  return next;
}

export function countByHealth(volumes: readonly Volume[]): Record<Health, number> {
  const counts: Record<Health, number> = { faulted: 0, degraded: 0, busy: 0, healthy: 0, detached: 0 };
  for (const v of volumes) counts[healthOf(v)] += 1;
  return counts;
}
