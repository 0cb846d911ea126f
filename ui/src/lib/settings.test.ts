import { describe, expect, it } from 'vitest';
import type { Setting, SettingDefinition } from '../api/types';
import { byCategory, plainValue, rangeText } from './settings';

function setting(name: string, definition: Partial<SettingDefinition> = {}): Setting {
  const base = { displayName: name, description: '', category: 'general', type: 'string', readOnly: false, default: '' };
  return { id: name, type: 'setting', links: {}, actions: {}, name, value: '', applied: true, definition: { ...base, ...definition } };
}

describe('byCategory', () => {
  const all = [setting('b', { category: 'scheduling' }), setting('z'), setting('a', { description: 'over provisioning' }), setting('c', { category: 'danger' })];
  const shape = (text: string) => byCategory(all, text).map(([category, list]) => [category, list.map((s) => s.name)]);
  it('groups, general first', () => expect(shape('')).toEqual([['general', ['a', 'z']], ['danger', ['c']], ['scheduling', ['b']]]));
  it('finds by description', () => expect(shape('OVER')).toEqual([['general', ['a']]]));
});

describe('rangeText', () => {
  it.each([
    [{ options: ['x', 'y'] }, 'one of x, y'],
    [{ range: { minimum: 1, maximum: 20 } }, '1 to 20'],
    [{ range: { minimum: 0 } }, '0 or more'],
    [{ range: { maximum: 9 } }, 'at most 9'],
    [{ type: 'bool' }, 'true or false'],
    [{}, ''],
  ])('%j → %s', (definition, want) => expect(rangeText(setting('s', definition))).toBe(want));
});

describe('plainValue', () => {
  it('is that of v1 where each data engine has one', () => {
    const s = setting('s', { dataEngineSpecific: true });
    expect(plainValue(s, '{"v1":"3","v2":"2"}')).toBe('3');
    expect(plainValue(s, '4')).toBe('4');
    expect(plainValue(setting('s'), '{"v1":"3"}')).toBe('{"v1":"3"}');
  });
});
