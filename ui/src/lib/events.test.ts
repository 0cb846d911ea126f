import { describe, expect, it } from 'vitest';
import { event, volume } from './fixtures';
import { aboutVolume, newestFirst, volumeOf } from './events';

describe('volumeOf', () => {
  it.each([
    ['Volume', 'v', 'v'],
    ['Replica', 'v-r-1a2b3c4d', 'v'],
    ['Replica', 'v-r-x-r-1a2b3c4d', 'v-r-x'],
    ['Engine', 'v-e-0', 'v'],
    ['ShareManager', 'v', 'v'],
    ['Node', 'v', ''],
    ['Replica', 'odd', ''],
  ])('%s %s → %j', (kind, name, want) => expect(volumeOf(event('e', { kind, name }))).toBe(want));
});

describe('aboutVolume', () => {
  it('has those of replicas that are gone, and none of a volume whose name begins alike', () => {
    const events = [event('1', { kind: 'Replica', name: 'v-r-gone0000' }), event('2', { kind: 'Volume', name: 'v2' }), event('3', { kind: 'Volume', name: 'v' })];
    expect(aboutVolume(events, volume('v')).map((e) => e.id)).toEqual(['1', '3']);
  });
});

describe('newestFirst', () => {
  it('orders by when an Event happened last, those without a time at the end', () => {
    const events = [event('old', { last: '2030-01-01T00:00:00Z' }), event('none', { last: '' }), event('new', { last: '2030-01-02T00:00:00Z' })];
    expect(newestFirst(events).map((e) => e.id)).toEqual(['new', 'old', 'none']);
    expect(events[0]?.id).toBe('old');
  });
});
