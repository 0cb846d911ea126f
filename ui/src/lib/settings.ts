// Grouping and describing settings.

import type { Setting } from '../api/types';

// byCategory groups settings, those of "general" first, then by name of the category, each in the order of what people read.
export function byCategory(settings: readonly Setting[], text: string): [string, Setting[]][] {
  const words = text.toLowerCase().split(/\s+/).filter((w) => w !== '');
  const groups = new Map<string, Setting[]>();
  for (const s of settings) {
    const hay = `${s.name} ${s.definition.displayName} ${s.definition.description}`.toLowerCase();
    if (!words.every((w) => hay.includes(w))) continue;
    const group = groups.get(s.definition.category);
    if (group === undefined) groups.set(s.definition.category, [s]);
    else group.push(s);
  }
  for (const group of groups.values()) group.sort((a, b) => a.definition.displayName.localeCompare(b.definition.displayName));
  const rank = (category: string) => (category === 'general' ? 0 : 1);
  return [...groups].sort(([a], [b]) => rank(a) - rank(b) || a.localeCompare(b));
}

// rangeText says which values a setting takes; empty if all of its type.
export function rangeText(s: Setting): string {
  const { range, options, type } = s.definition;
  if (options !== undefined && options.length > 0) return `one of ${options.join(', ')}`;
  if (range?.minimum !== undefined && range.maximum !== undefined) return `${range.minimum} to ${range.maximum}`;
  if (range?.minimum !== undefined) return `${range.minimum} or more`;
  if (range?.maximum !== undefined) return `at most ${range.maximum}`;
  return type === 'bool' ? 'true or false' : '';
}

// plainValue is the value of data engine v1, which counts, where a setting has one for each.
export function plainValue(s: Setting, text: string): string {
  if (s.definition.dataEngineSpecific !== true) return text;
  try {
    const parsed: unknown = JSON.parse(text);
    if (typeof parsed === 'object' && parsed !== null && 'v1' in parsed) return String(parsed.v1);
  } catch {
    // not JSON: one value for all
  }
  return text;
}
