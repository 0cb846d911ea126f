// Which Events are shown, and where.

import type { LonghornEvent, Volume } from '../api/types';
import { timeOf } from './format';

export function lastOf(e: LonghornEvent): number {
  return timeOf(e.event.lastTimestamp)?.getTime() ?? 0;
}

// newestFirst orders by when Events happened last.
export function newestFirst(events: readonly LonghornEvent[]): LonghornEvent[] {
  return [...events].sort((a, b) => lastOf(b) - lastOf(a) || a.id.localeCompare(b.id));
}

// volumeOf is the volume that an Event is about: the volume itself, or an object of its own, which has a name made from the volume's;
// empty if it is about something else.
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

// aboutVolume are the Events of a volume and of all that is its own, also of replicas that are gone.
export function aboutVolume(events: readonly LonghornEvent[], v: Volume): LonghornEvent[] {
  return events.filter((e) => volumeOf(e) === v.name);
}
