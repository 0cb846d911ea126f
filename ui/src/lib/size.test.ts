import { describe, expect, it } from 'vitest';
import { expandedSize, parseSize, sizeText, understood, volumeSize } from './size';

const English = 'en-GB';
const German = 'de-DE';

describe('parseSize', () => {
  it.each([
    ['10Gi', English, 10 * 2 ** 30],
    [' 10 GiB ', English, 10 * 2 ** 30],
    ['1.5t', English, 1.5e12],
    ['1.500Gi', English, 1.5 * 2 ** 30],
    ['500M', English, 5e8],
    ['4096', English, 4096],
    ['1.1k', English, 1100],
    ['1.005G', English, 1_005_000_000],
    ['0.3Gi', English, 322_122_548],
    ['1,5Gi', German, 1.5 * 2 ** 30],
    ['1,500Gi', German, 1.5 * 2 ** 30],
    ['1.5Gi', German, 1.5 * 2 ** 30],
    ['10Gi', German, 10 * 2 ** 30],
    ['1,5Gi', 'fr-FR', 1.5 * 2 ** 30],
    ['١٫٥Gi', 'ar-EG', 1.5 * 2 ** 30],
  ])('%j in %s → %d bytes', (text, locale, bytes) => expect(parseSize(text, {}, locale)).toEqual({ bytes, typed: bytes }));

  const unit = 'must be a number with a unit';
  const thousands = 'must not contain a thousands separator';
  it.each([
    ['', English, unit],
    ['ten', English, unit],
    ['10 potatoes', English, unit],
    ['-1Gi', English, unit],
    ['.5Gi', English, unit],
    ['5.Gi', English, unit],
    ['1e3', English, unit],
    ['1,5Gi', English, `${thousands}; the decimal separator is a point`],
    ['1,000Mi', English, thousands],
    ['1 000 Mi', English, thousands],
    ['1.000.000', English, thousands],
    ['1.000', German, `${thousands}; the decimal separator is a comma`],
    ['1.000Gi', German, thousands],
    ['1.000,5Gi', German, thousands],
    ['1 000Mi', 'fr-FR', thousands],
    ['1’000Mi', 'de-CH', thousands],
    ['1.5', English, 'must be a whole number of bytes'],
    ['0', English, 'must be more than 0'],
    ['99999999Pi', English, 'must be at most 8 PiB'],
  ])('%j in %s is refused', (text, locale, why) => expect(parseSize(text, {}, locale)).toEqual({ error: expect.stringContaining(why) as string }));

  it.each([
    ['10', volumeSize, 'must be at least 2,097,152 bytes (2 MiB)'],
    ['1Gi', expandedSize(2 ** 30), 'must be larger than the current size'],
  ])('%j breaks a rule', (text, rules, error) => expect(parseSize(text, rules, English)).toEqual({ error }));

  it('rounds up as the API does', () => {
    expect(parseSize('1G', volumeSize, English)).toEqual({ typed: 1e9, bytes: 1_000_341_504 });
    expect(parseSize('3Mi', expandedSize(2 ** 21), English)).toEqual({ typed: 3 * 2 ** 20, bytes: 2 ** 22 });
  });
  it('may be 0, or empty for it', () => {
    expect(parseSize('0', { least: 0 }, English)).toEqual({ bytes: 0, typed: 0 });
    expect(parseSize(' ', { least: 0 }, English)).toEqual({ bytes: 0, typed: 0 });
  });
});

describe('understood', () => {
  it('gives the bytes, and what they are about', () => {
    expect(understood({ bytes: 2 ** 31, typed: 2 ** 31 }, English)).toBe('= 2,147,483,648 bytes (2 GiB)');
    expect(understood({ bytes: 1.5 * 2 ** 30, typed: 1.5 * 2 ** 30 }, German)).toBe('= 1.610.612.736 bytes (1,5 GiB)');
    expect(understood({ bytes: 0, typed: 0 }, English)).toBe('= 0 bytes');
  });
  it('says that the size is rounded up', () => expect(understood({ bytes: 2 ** 22, typed: 3e6 }, English)).toBe('= 3,000,000 bytes, rounded up to 4,194,304 bytes (4 MiB)'));
});

describe('sizeText', () => {
  it.each([[0, '0'], [1, '1'], [2 ** 40, '1Ti'], [1.5 * 2 ** 30, '1536Mi'], [1e9, '1000000000'], [10 * 2 ** 30, '10Gi']])('%d → %j, which is read as the same', (bytes, text) => {
    expect(sizeText(bytes)).toBe(text);
    expect(parseSize(text, { least: 0 }, German)).toEqual({ bytes, typed: bytes });
  });
});
