// Rules for which conditions report a problem.

import type { Condition } from '../api/types';

// troubles contains the conditions that are True if there is a problem. All other conditions are False in that case.
// The package explain has the same list, and its tests compare the two.
const troubles = [
  'Faulted',
  'Attaching',
  'ChildRefused',
  'EvictionWaits',
  'CopiesMissing',
  'CopiesUnreachable',
  'SurplusReplicas',
  'DeviceInUse',
  'EpochRefused',
  'RemovalRefused',
  'TrustedNetwork',
  'TooManySnapshots',
  'SnapshotSpaceWaits',
];

// isAsWanted returns whether a condition reports no problem. An unknown status with a reason is a problem.
export function isAsWanted(type: string, c: Condition): boolean {
  if (c.status !== 'True' && c.status !== 'False') return c.reason === '';
  return (c.status === 'True') !== troubles.includes(type);
}

export interface Arranged {
  wrong: [string, Condition][];
  wanted: [string, Condition][];
}

// arranged separates the conditions that report a problem from the others, and sorts each group by type.
export function arranged(conditions: Record<string, Condition>): Arranged {
  const all = Object.entries(conditions).sort(([a], [b]) => a.localeCompare(b));
  return { wrong: all.filter(([type, c]) => !isAsWanted(type, c)), wanted: all.filter(([type, c]) => isAsWanted(type, c)) };
}

// wantedText says how many conditions report no problem. others says whether there are conditions that report one.
export function wantedText(wanted: number, others: boolean): string {
  if (wanted === 1) return others ? '1 other condition reports no problem' : 'The only condition reports no problem';
  return others ? `${wanted} other conditions report no problem` : `All ${wanted} conditions report no problem`;
}
