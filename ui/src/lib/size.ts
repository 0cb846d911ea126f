// Sizes as users write them in forms. A text that could mean two sizes is refused: otherwise the user would get a
// volume of the wrong size.

import { bytes as inWords, number } from './format';

const factors: Record<string, bigint> = {
  '': 1n, b: 1n,
  k: 10n ** 3n, m: 10n ** 6n, g: 10n ** 9n, t: 10n ** 12n, p: 10n ** 15n,
  kb: 10n ** 3n, mb: 10n ** 6n, gb: 10n ** 9n, tb: 10n ** 12n, pb: 10n ** 15n,
  ki: 2n ** 10n, mi: 2n ** 20n, gi: 2n ** 30n, ti: 2n ** 40n, pi: 2n ** 50n,
  kib: 2n ** 10n, mib: 2n ** 20n, gib: 2n ** 30n, tib: 2n ** 40n, pib: 2n ** 50n,
};

// Rules for a valid size.
export interface Rules {
  // least is the smallest size; the default is 1. With 0, an empty field means 0.
  least?: number;
  // tooSmall is the error for a smaller size. Without it, the error names least.
  tooSmall?: string;
  // step: the API rounds sizes up to a multiple of it.
  step?: number;
}

// volumeStep: the API rounds the sizes of volumes up to a multiple of it.
const volumeStep = 2 * 2 ** 20;

// volumeSize contains the rules for a new volume. The API would round 10 bytes up to volumeStep, but a user who types
// "10" does not mean that size.
export const volumeSize: Rules = { least: volumeStep, step: volumeStep };

// expandedSize returns the rules for a new size that is larger than the current size.
export function expandedSize(now: number): Rules {
  return { least: now + 1, tooSmall: 'must be larger than the current size', step: volumeStep };
}

// Parsed has the requested bytes, which are a multiple of the step, and the bytes that the user typed; or an error.
export type Parsed = { bytes: number; typed: number } | { error: string };

const decimalNames: Record<string, string> = { '.': 'a point', ',': 'a comma' };

// parseSize parses a number with a unit, in upper or lower case: 10Gi, 10 GiB, 1.5t. The decimal separator is the one
// of the locale. A point is also a decimal separator in every locale, as in Kubernetes, except before exactly three
// digits in a locale where it may separate thousands.
export function parseSize(text: string, rules: Rules = {}, locale?: string): Parsed {
  const { least = 1, tooSmall, step = 1 } = rules;
  if (text.trim() === '' && least === 0) return { bytes: 0, typed: 0 };
  const decimal = decimalOf(locale);
  const match = /^([\d.,'’٫٬_\s]*)([a-z]*)$/i.exec(withPlainDigits(text, locale).trim());
  const factor = factors[(match?.[2] ?? '').toLowerCase()];
  const amount = (match?.[1] ?? '').trim();
  if (factor === undefined || !/^\d.*\d$|^\d$/s.test(amount)) return { error: `must be a number with a unit, such as 10Gi or 1${decimal}5Ti` };
  const [, whole = '', sign = '', part = ''] = /^(\d+)(?:([^\d])(\d+))?$/.exec(amount) ?? [];
  const isDecimal = sign === '' || sign === decimal || (sign === '.' && part.length !== 3);
  if (whole === '' || !isDecimal) return { error: `must not contain a thousands separator; the decimal separator is ${decimalNames[decimal] ?? `“${decimal}”`}` };
  const scale = 10n ** BigInt(part.length);
  const scaled = BigInt(whole + part) * factor;
  if (factor === 1n && scaled % scale !== 0n) return { error: 'must be a whole number of bytes, or have a unit, such as 10Gi' };
  const typed = Number((scaled + scale - 1n) / scale);
  const bytes = Math.ceil(typed / step) * step;
  if (typed < least) return { error: tooSmall ?? (least === 1 ? 'must be more than 0' : `must be at least ${exactly(least, locale)}`) };
  if (!Number.isSafeInteger(bytes)) return { error: `must be at most ${inWords(2 ** 53, locale)}` };
  return { bytes, typed };
}

// understood returns the text that shows users which size they typed, before they send it.
export function understood(size: { bytes: number; typed: number }, locale?: string): string {
  if (size.typed === size.bytes) return `= ${exactly(size.bytes, locale)}`;
  return `= ${number(size.typed, locale)} bytes, rounded up to ${exactly(size.bytes, locale)}`;
}

function exactly(n: number, locale?: string): string {
  const all = `${number(n, locale)} ${n === 1 ? 'byte' : 'bytes'}`;
  return n < 1024 ? all : `${all} (${inWords(n, locale)})`;
}

// sizeText formats bytes so that parseSize returns the same number.
export function sizeText(bytes: number): string {
  const unit = bytes === 0 ? undefined : ['Ti', 'Gi', 'Mi', 'Ki'].find((u) => bytes % Number(factors[u.toLowerCase()]) === 0);
  return unit === undefined ? String(bytes) : `${bytes / Number(factors[unit.toLowerCase()])}${unit}`;
}

function decimalOf(locale?: string): string {
  return new Intl.NumberFormat(locale).formatToParts(1.5).find((p) => p.type === 'decimal')?.value ?? '.';
}

// withPlainDigits replaces the locale's own digits with 0 to 9.
function withPlainDigits(text: string, locale?: string): string {
  const own = Array.from(new Intl.NumberFormat(locale, { useGrouping: false }).format(9876543210)).reverse();
  return Array.from(text, (c) => (own.includes(c) ? String(own.indexOf(c)) : c)).join('');
}
