// How the page calls volumes and their objects: users know a volume by its claim, and not by the name that the provisioner gave it.

import type { Volume } from '../api/types';
import { claimOf } from './volume';

// titleOf is the claim of a volume; its name if it has no claim.
export function titleOf(v: Volume): string {
  return claimOf(v) || v.name;
}

// fullNameOf is the claim of a volume with the volume's name in brackets; the name alone if it has no claim.
export function fullNameOf(v: Volume): string {
  return claimOf(v) === '' ? v.name : `${claimOf(v)} (${v.name})`;
}

// objectText names an object of a volume, or the volume itself. volume is undefined if the object has none, or if it is not known.
export function objectText(kind: string, name: string, volume: Volume | undefined): string {
  const claim = volume === undefined ? '' : claimOf(volume);
  if (volume === undefined || claim === '' || name === claim) return `${kind} ${name}`;
  return name === volume.name ? `${kind} ${fullNameOf(volume)}` : `${kind} ${name} of ${claim}`;
}

// withClaim is a text of the API about an object of a volume, with the claim added to the volume's name. If the text names only other objects,
// the claim is put before it.
export function withClaim(text: string, volume: Volume | undefined): string {
  if (volume === undefined || claimOf(volume) === '') return text;
  // The names of replicas and engines start with that of their volume.
  const named = new RegExp(`(?<![\\w./-])${volume.name.replace(/[.]/g, '\\.')}(?![\\w/-]|\\.\\w)`);
  return named.test(text) ? text.replace(named, () => fullNameOf(volume)) : `${claimOf(volume)}: ${text}`;
}
