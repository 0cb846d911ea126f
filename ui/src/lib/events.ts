// Rules for which Events are shown, and where.

import type { LonghornEvent, Volume } from '../api/types';
import { timeOf } from './format';

export function lastOf(e: LonghornEvent): number {
  return timeOf(e.event.lastTimestamp)?.getTime() ?? 0;
}

// newestFirst sorts Events by the time at which they last happened.
export function newestFirst(events: readonly LonghornEvent[]): LonghornEvent[] {
  return [...events].sort((a, b) => lastOf(b) - lastOf(a) || a.id.localeCompare(b.id));
}

// volumeOf returns the name of the volume that an Event is about. The Event may be about the volume itself, or about
// one of its objects, whose name contains the name of the volume. It is empty for every other Event.
export function volumeOf(e: LonghornEvent): string {
  const { kind, name } = e.event.involvedObject;
  switch (kind) {
    case 'Volume':
    case 'VolumeAttachment':
    case 'ShareManager':
      return name;
    case 'Replica':
      return beforeLast(name, '-r-');
    case 'Engine':
      return beforeLast(name, '-e-');
    default:
      return '';
  }
}

function beforeLast(name: string, mark: string): string {
  const at = name.lastIndexOf(mark);
  return at < 0 ? '' : name.slice(0, at);
}

// aboutVolume returns the Events of a volume and of all its objects, including replicas that no longer exist.
export function aboutVolume(events: readonly LonghornEvent[], v: Volume): LonghornEvent[] {
  return events.filter((e) => volumeOf(e) === v.name);
}
