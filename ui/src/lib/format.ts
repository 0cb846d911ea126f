// Numbers and times in the reader's locale.

const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB'];

// bytes is a size with at most three significant digits, as 1.5 GiB.
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

// sizeOf reads a size of the wire: decimal bytes.
export function sizeOf(text: string | undefined): number {
  const n = Number(text ?? '');
  return text === undefined || text === '' || !Number.isFinite(n) ? 0 : n;
}

// wholeNumber reads a number that a person typed; null for anything else.
export function wholeNumber(text: string): number | null {
  return /^\d{1,9}$/.test(text.trim()) ? Number(text) : null;
}

export function number(n: number, locale?: string): string {
  return new Intl.NumberFormat(locale).format(n);
}

// percent is a whole number of percent; a whole of nothing has none.
export function percent(part: number, whole: number, locale?: string): string {
  if (whole <= 0) return '–';
  return new Intl.NumberFormat(locale, { style: 'percent', maximumFractionDigits: 0 }).format(part / whole);
}

// timeOf reads a time of the wire: RFC 3339, or as Go prints it ("2026-08-14 12:00:00 +0000 UTC"); null for none.
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

// ago is how long before now, in the largest whole unit. The clock of the cluster may be a little ahead of the reader's: then it is now.
export function ago(date: Date, now: Date, locale?: string): string {
  const exact = Math.round((date.getTime() - now.getTime()) / 1000);
  const seconds = exact > 0 && exact < 60 ? 0 : exact;
  const format = new Intl.RelativeTimeFormat(locale, { numeric: 'auto', style: 'short' });
  for (const [unit, length] of steps) {
    if (Math.abs(seconds) >= length) return format.format(Math.trunc(seconds / length), unit);
  }
  return format.format(seconds, 'second');
}
