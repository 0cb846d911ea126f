// Names of volumes and their objects on the page. Users know a volume by its claim, and not by the name that the
// provisioner gave it.

import type { Volume } from '../api/types';
import { claimOf } from './volume';

// titleOf returns the claim of a volume, or the volume's name if there is no claim.
export function titleOf(v: Volume): string {
  return claimOf(v) || v.name;
}

// fullNameOf returns the claim of a volume with the volume's name in brackets, or only the volume's name if there is no
// claim.
export function fullNameOf(v: Volume): string {
  return claimOf(v) === '' ? v.name : `${claimOf(v)} (${v.name})`;
}

// objectText names a volume or an object of a volume. volume is undefined if the object has none, or if it is not
// known.
export function objectText(kind: string, name: string, volume: Volume | undefined): string {
  const claim = volume === undefined ? '' : claimOf(volume);
  if (volume === undefined || claim === '' || name === claim) return `${kind} ${name}`;
  return name === volume.name ? `${kind} ${fullNameOf(volume)}` : `${kind} ${name} of ${claim}`;
}

// withClaim returns a text of the API about an object of a volume, with the claim added to the volume's name. If the
// text names only other objects, the claim is put before the text.
export function withClaim(text: string, volume: Volume | undefined): string {
  if (volume === undefined || claimOf(volume) === '') return text;
  // The names of replicas and engines start with the name of their volume.
  const named = new RegExp(`(?<![\\w./-])${volume.name.replace(/[.]/g, '\\.')}(?![\\w/-]|\\.\\w)`);
  return named.test(text) ? text.replace(named, () => fullNameOf(volume)) : `${claimOf(volume)}: ${text}`;
}
