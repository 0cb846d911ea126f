import { describe, expect, it } from 'vitest';
import type { Condition } from '../api/types';
import { snapshot, volume } from './fixtures';
import { keptFromRevert, labelsText, parseLabels, snapshotsOf, stateOf } from './snapshot';

function condition(type: string, status: string, message: string): Record<string, Condition> {
  return { [type]: { type, status, reason: 'Any', message, lastTransitionTime: '' } };
}

describe('snapshotsOf', () => {
  it('lists those of the volume, the newest first, and requested ones before them', () => {
    const all = [
      snapshot('old', { creationTime: '2030-01-01T00:00:00Z' }),
      snapshot('foreign', { volume: 'other' }),
      snapshot('requested', { creationTime: '' }),
      snapshot('new', { creationTime: '2030-01-02T00:00:00Z' }),
    ];
    expect(snapshotsOf(all, 'v').map((s) => s.name)).toEqual(['requested', 'new', 'old']);
  });
});

describe('stateOf', () => {
  it.each([
    ['ready', snapshot('s'), ['good', 'ready', '']],
    ['requested', snapshot('s', { readyToUse: false, creationTime: '', conditions: condition('Ready', 'False', 'the volume is being attached') }), ['busy', 'being taken', 'the volume is being attached']],
    ['failed', snapshot('s', { readyToUse: false, creationTime: '', error: 'no room' }), ['warn', 'not ready', 'no room']],
    ['deleted', snapshot('s', { markRemoved: true, conditions: condition('SpaceFreed', 'False', 'replica r-1 is away') }), ['busy', 'deleted, its space is being freed', 'replica r-1 is away']],
    ['of an API without conditions', snapshot('s', { readyToUse: false, conditions: null }), ['busy', 'not ready', '']],
  ])('%s', (_, s, [tone, text, why]) => {
    expect(stateOf(s)).toEqual({ tone, text, why });
  });
});

describe('labels', () => {
  it('are shown sorted', () => {
    expect(labelsText(snapshot('s', { labels: { b: '', a: 'x' } }))).toBe('a: x, b');
    expect(labelsText(snapshot('s', { labels: null }))).toBe('');
  });
  it.each([
    ['', { labels: {} }],
    ['app: db, nightly', { labels: { app: 'db', nightly: '' } }],
    ['url: http://x', { labels: { url: 'http://x' } }],
    ['app=db', { wrong: 'app=db' }],
    [': db', { wrong: ': db' }],
  ])('%j is parsed', (text, want) => {
    expect(parseLabels(text)).toEqual(want);
  });
});

describe('keptFromRevert', () => {
  const s = snapshot('s');
  const later = snapshot('later', { creationTime: '2030-01-02T00:00:00Z' });
  it.each([
    ['a detached volume and the newest snapshot', volume('v'), [s], s, ''],
    ['an attached volume', volume('v', { state: 'attached' }), [s], s, 'the volume is not detached'],
    ['a snapshot that is not ready', volume('v'), [s], snapshot('s', { readyToUse: false }), 'the snapshot is not ready'],
    ['a later snapshot', volume('v'), [s, later], s, 'later snapshots exist, and they would be lost: later'],
    ['a later snapshot that was deleted', volume('v'), [s, { ...later, markRemoved: true }], s, ''],
    ['a later snapshot of another volume', volume('v'), [s, { ...later, volume: 'other' }], s, ''],
  ])('%s', (_, v, all, target, want) => {
    expect(keptFromRevert(v, all, target)).toBe(want);
  });
});
