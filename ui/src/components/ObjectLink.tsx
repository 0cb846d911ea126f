import { Link } from 'wouter';
import type { Finding, Volume } from '../api/types';
import { objectText } from '../lib/names';

// ObjectLink links to the page that shows an object. volume is the volume of the object, if it is known.
export function ObjectLink({ object, volume }: { object: Finding['object']; volume: Volume | undefined }) {
  const text = `${objectText(object.kind, object.name, volume)}${object.node !== '' && object.kind === 'disk' ? ` on node ${object.node}` : ''}`;
  if (object.volume !== '') return <Link href={`/volumes/${encodeURIComponent(object.volume)}`}>{text}</Link>;
  if (object.kind === 'node' || object.kind === 'disk') return <Link href={`/nodes#${object.kind === 'node' ? object.name : object.node}`}>{text}</Link>;
  if (object.kind === 'setting') return <Link href={`/settings#${object.name}`}>{text}</Link>;
  return <>{text}</>;
}
