import { describe, expect, it } from 'vitest';
import { ago, bytes, percent, sizeOf, timeOf, wholeNumber } from './format';

describe('bytes', () => {
  it.each([
    [0, '0 B'],
    [1023, '1,023 B'],
    [1024, '1 KiB'],
    [1.5 * 1024 ** 3, '1.5 GiB'],
    [10.25 * 1024 ** 3, '10.3 GiB'],
    [200 * 1024 ** 4, '200 TiB'],
    [Number.NaN, '–'],
  ])('%d → %s', (n, want) => expect(bytes(n, 'en')).toBe(want));

  it('follows the locale', () => expect(bytes(1.5 * 1024 ** 3, 'de')).toBe('1,5 GiB'));
});

describe('percent', () => {
  it.each([
    [1, 4, '25%'],
    [3, 2, '150%'],
    [0, 0, '–'],
  ])('%d of %d → %s', (part, whole, want) => expect(percent(part, whole, 'en')).toBe(want));
});

describe('sizeOf', () => {
  it('reads decimal bytes, and nothing as 0', () => {
    expect(sizeOf('10737418240')).toBe(10737418240);
    expect(sizeOf('')).toBe(0);
    expect(sizeOf(undefined)).toBe(0);
    expect(sizeOf('big')).toBe(0);
  });
});

describe('timeOf', () => {
  it.each([
    ['2026-08-14T12:00:00Z', '2026-08-14T12:00:00.000Z'],
    ['2026-08-14 12:00:00 +0000 UTC', '2026-08-14T12:00:00.000Z'],
    ['2026-08-14 14:00:00.5 +0200 CEST', '2026-08-14T12:00:00.500Z'],
  ])('%s', (text, want) => expect(timeOf(text)?.toISOString()).toBe(want));

  it.each(['', '0001-01-01T00:00:00Z', 'yesterday'])('%j is none', (text) => expect(timeOf(text)).toBeNull());
});

describe('wholeNumber', () => {
  it.each<[string, number | null]>([['3', 3], [' 20 ', 20], ['0', 0], ['', null], ['-1', null], ['2.5', null], ['1e3', null], ['three', null], ['9999999999', null]])('%j → %j', (text, want) =>
    expect(wholeNumber(text)).toBe(want),
  );
});

describe('ago', () => {
  const now = new Date('2026-08-14T12:00:00Z');
  it.each([
    ['2026-08-14T12:00:20Z', 'now'],
    ['2026-08-14T12:00:00Z', 'now'],
    ['2026-08-14T11:59:30Z', '30 sec ago'],
    ['2026-08-14T11:54:01Z', '5 min ago'],
    ['2026-08-14T11:00:00Z', '1 hr ago'],
    ['2026-08-13T11:00:00Z', 'yesterday'],
    ['2026-08-12T11:00:00Z', '2 days ago'],
    ['2026-05-12T11:00:00Z', '3 mo ago'],
    ['2024-05-12T11:00:00Z', '2 yr ago'],
    ['2026-08-14T12:10:00Z', 'in 10 min'],
  ])('%s → %s', (text, want) => expect(ago(new Date(text), now, 'en-GB')).toBe(want));

  it('follows the locale', () => expect(ago(new Date('2026-08-14T11:54:01Z'), now, 'de')).toBe('vor 5 Min.'));
});
