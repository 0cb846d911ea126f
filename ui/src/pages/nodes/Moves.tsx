import { Link } from 'wouter';
import { useCollection } from '../../api/live';
import { Progress } from '../../components/Meter';
import { bytes } from '../../lib/format';
import { fullNameOf } from '../../lib/names';
import { movesOf, type Move } from '../../lib/volume';

// Moves shows the replicas that must still leave a disk during its eviction, each with the progress of its volume.
export function Moves({ replicas, name }: { replicas: Record<string, number>; name: string }) {
  const volumes = useCollection('volumes');
  const moves = movesOf(replicas, volumes.data ?? []);
  if (moves.length === 0) return null;
  return (
    <ul className="moves" aria-label={`Replicas that are still on ${name}`}>
      {moves.map((m) => (
        <li key={m.replica}>
          {m.volume === null ? m.replica : <Link href={`/volumes/${encodeURIComponent(m.volume.name)}`}>{fullNameOf(m.volume)}</Link>}, {bytes(m.bytes)}
          <State move={m} />
        </li>
      ))}
    </ul>
  );
}

function State({ move }: { move: Move }) {
  if (move.progress !== null) return <Progress label={`Rebuild of ${move.volume === null ? move.replica : fullNameOf(move.volume)} on another disk`} value={move.progress} />;
  return <span className="small">{move.waits === '' ? ': waiting for its turn' : `: ${move.waits}`}</span>;
}
