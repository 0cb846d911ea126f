// Names of volumes and their objects on the page. Users know a volume by its claim, and not by the name that the
// provisioner gave it.

import type { Volume } from '../api/types';
import { claimOf } from './volume';

// titleOf returns the claim of a volume, or the volume's name if there is no claim.
export function titleOf(v: Volume): string {
  return claimOf(v) || v.name;
}

// fullNameOf returns the claim of a volume with the volume's name in brackets, or only the volume's name if there is no
// claim. VolumeText in types/claim.go has the same rule for the texts of the API.
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
// text names only other objects, the claim is put before the text. A text that names the claim stays as it is.
export function withClaim(text: string, volume: Volume | undefined): string {
  const claim = volume === undefined ? '' : claimOf(volume);
  if (volume === undefined || claim === '' || word(claim).test(text)) return text;
  const name = word(volume.name);
  return name.test(text) ? text.replace(name, () => fullNameOf(volume)) : `${claim}: ${text}`;
}

// word matches a name in a text that is not a part of a longer name: the names of replicas and engines start with the
// name of their volume.
function word(name: string): RegExp {
  return new RegExp(`(?<![\\w./-])${name.replace(/[.]/g, '\\.')}(?![\\w/-]|\\.\\w)`);
}
