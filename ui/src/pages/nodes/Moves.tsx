import { Link } from 'wouter';
import { useCollection } from '../../api/live';
import { Progress } from '../../components/Meter';
import { bytes } from '../../lib/format';
import { fullNameOf } from '../../lib/names';
import { movesOf, type Move } from '../../lib/volume';

// Moves are the replicas that are still to leave a disk which is being emptied, each with how far its volume has got.
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
