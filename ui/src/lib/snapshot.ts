// The state of a snapshot, as derived from the fields of the API.

import type { Snapshot, Volume } from '../api/types';
import { timeOf } from './format';
import type { Tone } from './tone';

// snapshotsOf returns the snapshots of a volume, the newest first. Those that are not taken yet come before all others.
export function snapshotsOf(all: readonly Snapshot[], volume: string): Snapshot[] {
  const at = (s: Snapshot) => timeOf(s.creationTime)?.getTime() ?? Infinity;
  return all
    .filter((s) => s.volume === volume)
    .sort((a, b) => (at(a) === at(b) ? b.crCreationTime.localeCompare(a.crCreationTime) || b.name.localeCompare(a.name) : at(b) - at(a)));
}

export interface SnapshotState {
  tone: Tone;
  text: string;
  // why is the API's text about what the snapshot waits for. It is empty if nothing is wrong, or no reason is known.
  why: string;
}

// stateOf returns the state of a snapshot in the words of users. A deleted snapshot is listed until its space is free.
export function stateOf(s: Snapshot): SnapshotState {
  if (s.markRemoved) return { tone: 'busy', text: 'deleted, its space is being freed', why: messageOf(s, 'SpaceFreed') };
  if (s.readyToUse) return { tone: 'good', text: 'ready', why: '' };
  if (s.error !== '') return { tone: 'warn', text: 'not ready', why: s.error };
  return { tone: 'busy', text: s.creationTime === '' ? 'being taken' : 'not ready', why: messageOf(s, 'Ready') };
}

function messageOf(s: Snapshot, condition: string): string {
  const c = s.conditions?.[condition];
  return c === undefined || c.status === 'True' ? '' : c.message;
}

export function labelsText(s: Snapshot): string {
  return Object.entries(s.labels ?? {})
    .map(([key, value]) => (value === '' ? key : `${key}: ${value}`))
    .sort()
    .join(', ');
}

// parseLabels parses labels that the user typed: "key: value" or "key", separated by commas. It returns the text that is
// not a label as wrong.
export function parseLabels(text: string): { labels: Record<string, string> } | { wrong: string } {
  const labels: Record<string, string> = {};
  for (const part of text.split(',').map((p) => p.trim())) {
    if (part === '') continue;
    const colon = part.indexOf(':');
    const key = (colon < 0 ? part : part.slice(0, colon)).trim();
    if (key === '' || part.includes('=')) return { wrong: part };
    labels[key] = colon < 0 ? '' : part.slice(colon + 1).trim();
  }
  return { labels };
}

// keptFromRevert returns the reason why the API refuses to return a volume to a snapshot now. It is empty if the volume
// can return. The API has the same rules, and decides.
export function keptFromRevert(v: Volume, snapshots: readonly Snapshot[], s: Snapshot): string {
  if (!s.readyToUse || s.markRemoved) return 'the snapshot is not ready';
  if (v.state !== 'detached') return 'the volume is not detached';
  const later = snapshots.filter((o) => o.volume === v.name && !o.markRemoved && (timeOf(o.creationTime)?.getTime() ?? 0) > (timeOf(s.creationTime)?.getTime() ?? 0));
  return later.length === 0 ? '' : `later snapshots exist, and they would be lost: ${later.map((o) => o.name).sort().join(', ')}`;
}
