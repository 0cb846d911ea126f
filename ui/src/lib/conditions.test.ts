import { describe, expect, it } from 'vitest';
import type { Condition } from '../api/types';
import { arranged, isAsWanted, wantedText } from './conditions';

const condition = (type: string, status: string, reason = ''): Condition => ({ type, status, reason, message: '', lastTransitionTime: '' });

describe('isAsWanted', () => {
  it.each([
    ['Ready', 'True', '', true],
    ['Ready', 'False', 'NodeNotReady', false],
    ['Faulted', 'False', '', true],
    ['Faulted', 'True', 'AllReplicasFailed', false],
    ['Ready', 'Unknown', '', true],
    ['Ready', 'Unknown', 'Silent', false],
    ['Ready', '', '', true],
    ['SomethingNew', 'False', '', false],
  ])('%s %s %s → %s', (type, status, reason, want) => expect(isAsWanted(type, condition(type, status, reason))).toBe(want));
});

describe('arranged', () => {
  it('separates what is wrong from what is as wanted', () => {
    const all = Object.fromEntries([condition('Scheduled', 'True'), condition('Faulted', 'True'), condition('Attaching', 'False'), condition('Expanded', 'False')].map((c) => [c.type, c]));
    const { wrong, wanted } = arranged(all);
    expect(wrong.map(([type]) => type)).toEqual(['Expanded', 'Faulted']);
    expect(wanted.map(([type]) => type)).toEqual(['Attaching', 'Scheduled']);
  });
});

describe('wantedText', () => {
  it.each([
    [1, false, 'The only condition reports no problem'],
    [3, false, 'All 3 conditions report no problem'],
    [1, true, '1 other condition reports no problem'],
    [3, true, '3 other conditions report no problem'],
  ])('%d, %s → %s', (wanted, others, want) => expect(wantedText(wanted, others)).toBe(want));
});
