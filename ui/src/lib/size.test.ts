import { describe, expect, it } from 'vitest';
import { parseSize } from './size';

describe('parseSize', () => {
  it.each([
    ['10Gi', 10 * 2 ** 30],
    [' 10 GiB ', 10 * 2 ** 30],
    ['1.5t', 1.5e12],
    ['500M', 5e8],
    ['4096', 4096],
  ])('%j → %d bytes', (text, bytes) => expect(parseSize(text)).toEqual({ bytes }));

  it.each(['', 'ten', '10 potatoes', '-1Gi', '1,5Gi', '0', '99999999Pi'])('%j is refused', (text) => expect(parseSize(text)).toHaveProperty('error'));
});
