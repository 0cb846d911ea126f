// Sizes as people write them in forms.

const factors: Record<string, number> = {
  '': 1, b: 1,
  k: 1e3, m: 1e6, g: 1e9, t: 1e12, p: 1e15,
  kb: 1e3, mb: 1e6, gb: 1e9, tb: 1e12, pb: 1e15,
  ki: 2 ** 10, mi: 2 ** 20, gi: 2 ** 30, ti: 2 ** 40, pi: 2 ** 50,
  kib: 2 ** 10, mib: 2 ** 20, gib: 2 ** 30, tib: 2 ** 40, pib: 2 ** 50,
};

export type Parsed = { bytes: number } | { error: string };

// parseSize reads a number with a unit, in any case of letters: 10Gi, 10 GiB, 1.5t. The decimal sign is a point.
export function parseSize(text: string): Parsed {
  const match = /^\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*$/i.exec(text);
  const factor = match ? factors[(match[2] ?? '').toLowerCase()] : undefined;
  if (match === null || factor === undefined) return { error: 'must be a number with a unit, as 10Gi or 500M' };
  const bytes = Math.round(Number(match[1]) * factor);
  if (bytes < 1) return { error: 'must be more than 0' };
  if (!Number.isSafeInteger(bytes)) return { error: 'is more than any disk holds' };
  return { bytes };
}
