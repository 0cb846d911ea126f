// Numbers and times in the user's locale.

const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB'];

// bytes formats a size with at most three significant digits, for example 1.5 GiB.
export function bytes(n: number, locale?: string): string {
  if (!Number.isFinite(n)) return '–';
  let value = Math.abs(n);
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  const digits = value >= 100 || unit === 0 ? 0 : value >= 10 ? 1 : 2;
  const text = new Intl.NumberFormat(locale, { maximumFractionDigits: digits }).format(n < 0 ? -value : value);
  return `${text} ${units[unit] ?? ''}`;
}

// sizeOf parses a size from the API: decimal bytes.
export function sizeOf(text: string | undefined): number {
  const n = Number(text ?? '');
  return text === undefined || text === '' || !Number.isFinite(n) ? 0 : n;
}

// wholeNumber parses a number that the user typed; null if the text is not a whole number.
export function wholeNumber(text: string): number | null {
  return /^\d{1,9}$/.test(text.trim()) ? Number(text) : null;
}

export function number(n: number, locale?: string): string {
  return new Intl.NumberFormat(locale).format(n);
}

// percent formats a share as a whole number of percent. It returns a dash if the whole is 0.
export function percent(part: number, whole: number, locale?: string): string {
  if (whole <= 0) return '–';
  return new Intl.NumberFormat(locale, { style: 'percent', maximumFractionDigits: 0 }).format(part / whole);
}

// timeOf parses a time from the API: RFC 3339, or Go's format ("2026-08-14 12:00:00 +0000 UTC"); null if there is no
// time.
export function timeOf(text: string | undefined): Date | null {
  if (text === undefined || text === '' || text.startsWith('0001-')) return null;
  const go = /^(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d(?:\.\d+)?) ([+-]\d\d)(\d\d)/.exec(text);
  const date = new Date(go ? `${go[1] ?? ''}T${go[2] ?? ''}${go[3] ?? ''}:${go[4] ?? ''}` : text);
  return Number.isNaN(date.getTime()) ? null : date;
}

export function dateTime(date: Date, locale?: string): string {
  return new Intl.DateTimeFormat(locale, { dateStyle: 'medium', timeStyle: 'medium' }).format(date);
}

const steps: [Intl.RelativeTimeFormatUnit, number][] = [
  ['year', 31_536_000],
  ['month', 2_592_000],
  ['day', 86_400],
  ['hour', 3600],
  ['minute', 60],
];

// ago formats the time that has passed, in the largest whole unit. The clock of the cluster may be a little ahead of
// the user's clock: then the text is "now".
export function ago(date: Date, now: Date, locale?: string): string {
  const exact = Math.round((date.getTime() - now.getTime()) / 1000);
  const seconds = exact > 0 && exact < 60 ? 0 : exact;
  const format = new Intl.RelativeTimeFormat(locale, { numeric: 'auto', style: 'short' });
  for (const [unit, length] of steps) {
    if (Math.abs(seconds) >= length) return format.format(Math.trunc(seconds / length), unit);
  }
  return format.format(seconds, 'second');
}
