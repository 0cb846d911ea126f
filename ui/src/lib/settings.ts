// Grouping and describing settings.

import type { Setting } from '../api/types';

// byCategory groups settings by category, with "general" first and the others sorted by name. Within a category,
// settings are sorted by the name that users see.
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

// rangeText describes the values that a setting accepts. It is empty if the setting accepts all values of its type.
export function rangeText(s: Setting): string {
  const { range, options, type } = s.definition;
  if (options !== undefined && options.length > 0) return `one of ${options.join(', ')}`;
  if (range?.minimum !== undefined && range.maximum !== undefined) return `${range.minimum} to ${range.maximum}`;
  if (range?.minimum !== undefined) return `${range.minimum} or more`;
  if (range?.maximum !== undefined) return `at most ${range.maximum}`;
  return type === 'bool' ? 'true or false' : '';
}

// plainValue returns the value for the data engine v1, which is the one in use, if the setting has a value for each
// data engine.
export function plainValue(s: Setting, text: string): string {
  if (s.definition.dataEngineSpecific !== true) return text;
  try {
    const parsed: unknown = JSON.parse(text);
    if (typeof parsed === 'object' && parsed !== null && 'v1' in parsed) return String(parsed.v1);
  } catch {
    // The value is not JSON: it is the value for all data engines.
  }
  return text;
}
