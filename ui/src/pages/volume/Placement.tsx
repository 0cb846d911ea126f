import { useCollection } from '../../api/live';
import type { Node, Replica, Volume } from '../../api/types';
import { Badge } from '../../components/Badge';
import { Progress } from '../../components/Meter';
import { bytes } from '../../lib/format';
import { readinessOf, unreadableNodes, type Readiness } from '../../lib/node';
import type { Tone } from '../../lib/tone';
import { missing, nodeOf } from '../../lib/volume';

// Placement draws the nodes, their disks with the replicas, and the progress of rebuilds.
export function Placement({ volume }: { volume: Volume }) {
  const nodes = useCollection('nodes');
  const known = (nodes.data ?? []).map((n) => n.name);
  // A removed node may still hold a replica.
  const names = [...new Set([...known, ...(volume.replicas ?? []).map((r) => r.hostId)])].filter((n) => n !== '').sort();
  const unseen = nodes.data === undefined ? unreadableNodes(nodes.error) : '';
  // If the scheduler reports a problem, its text says why there are too few replicas. Otherwise a replica may be about
  // to appear.
  const scheduled = volume.conditions['Scheduled'];
  const waiting = scheduled?.status === 'True' && scheduled.message === '' ? 0 : missing(volume);
  return (
    <section className="card" aria-labelledby="placement">
      <h2 id="placement">Replicas on nodes and disks</h2>
      {unseen !== '' && <p className="small">{unseen}</p>}
      <ul className="placement">
        {names.map((name) => (
          <NodeBox key={name} name={name} node={nodes.data?.find((n) => n.name === name)} readiness={readinessOf(nodes.data, name)} volume={volume} />
        ))}
      </ul>
      {waiting > 0 && (
        <p className="warning">
          {waiting} of {volume.numberOfReplicas} replicas {waiting === 1 ? 'is' : 'are'} not on a disk yet{scheduled?.message ? `: ${scheduled.message}` : ''}
        </p>
      )}
    </section>
  );
}

function NodeBox({ name, node, readiness, volume }: { name: string; node: Node | undefined; readiness: Readiness; volume: Volume }) {
  const replicas = (volume.replicas ?? []).filter((r) => r.hostId === name);
  const isUser = nodeOf(volume) === name;
  return (
    <li className={`node-box${isUser ? ' user' : ''}${replicas.length === 0 ? ' vacant' : ''}`}>
      <h3>
        {name} {isUser && <span className="chip">attached here</span>} {readiness === 'not ready' && <Badge tone="bad">not ready</Badge>}
      </h3>
      {replicas.length === 0 && <p className="small">no replica</p>}
      {replicas.map((r) => (
        <ReplicaBox key={r.name} replica={r} volume={volume} node={node} isNodeKnown={readiness !== 'unknown'} />
      ))}
    </li>
  );
}

function stateOf(r: Replica, isRebuilding: boolean): [Tone, string] {
  if (isRebuilding || r.mode === 'WO') return ['busy', 'rebuilding'];
  if (r.mode === 'RW') return ['good', 'healthy'];
  if (r.mode === 'ERR' || r.failedAt !== '') return ['bad', 'failed'];
  return r.running ? ['busy', 'starting'] : ['idle', 'stopped'];
}

function ReplicaBox({ replica: r, volume, node, isNodeKnown }: { replica: Replica; volume: Volume; node: Node | undefined; isNodeKnown: boolean }) {
  const status = (volume.rebuildStatus ?? []).find((s) => s.replica === r.name && s.state !== 'complete');
  const [tone, text] = stateOf(r, status?.isRebuilding === true);
  const disk = Object.entries(node?.disks ?? {}).find(([, d]) => d.diskUUID === r.diskID && r.diskID !== '');
  return (
    <div className="replica-box">
      <p>
        <Badge tone={tone}>{text}</Badge> <span className="name">{r.name}</span>
      </p>
      <p className="small">
        {disk ? `${disk[0]}, ${bytes(disk[1].storageAvailable)} free · ` : isNodeKnown ? 'disk unknown · ' : ''}
        {r.diskPath}
      </p>
      {status?.isRebuilding && <Progress label={`Rebuild of ${r.name}`} value={status.progress} text={`${status.progress} %${status.copyBytes ? ` of ${status.partial ? 'the missing ' : ''}${bytes(status.copyBytes)}` : ''}`} />}
      {status !== undefined && status.error !== '' && <p className="field-error">{status.error}</p>}
    </div>
  );
}
