import type { Volume } from '../api/types';
import { bytes } from '../lib/format';
import { fullNameOf } from '../lib/names';
import { expansionOf } from '../lib/volume';
import { Progress } from './Meter';

// ExpansionProgress shows that a volume grows, and what delays it. There is no bar with a length: the new size is
// offered in one step, after all replicas have grown.
export function ExpansionProgress({ volume }: { volume: Volume }) {
  const e = expansionOf(volume);
  if (e === null) return null;
  const text = `${e.offered > 0 ? `${bytes(e.offered)} now, ` : ''}${bytes(e.wanted)} requested`;
  return (
    <>
      <Progress label={`Expansion of ${fullNameOf(volume)}`} text={text} />
      {e.waits !== '' && <p className="warning">{e.waits}</p>}
    </>
  );
}
