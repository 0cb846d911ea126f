import { Link } from 'wouter';
import type { Finding } from '../api/types';

// ObjectLink leads to where an object is shown.
export function ObjectLink({ object }: { object: Finding['object'] }) {
  const text = `${object.kind} ${object.name}${object.node !== '' && object.kind === 'disk' ? ` on node ${object.node}` : ''}`;
  if (object.volume !== '') return <Link href={`/volumes/${encodeURIComponent(object.volume)}`}>{text}</Link>;
  if (object.kind === 'node' || object.kind === 'disk') return <Link href={`/nodes#${object.kind === 'node' ? object.name : object.node}`}>{text}</Link>;
  if (object.kind === 'setting') return <Link href={`/settings#${object.name}`}>{text}</Link>;
  return <>{text}</>;
}
