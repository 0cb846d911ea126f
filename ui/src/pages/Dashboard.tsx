import { Link } from 'wouter';
import { useCollection } from '../api/live';
import type { Node, Volume } from '../api/types';
import { Badge } from '../components/Badge';
import { EventsCard } from '../components/EventList';
import { Findings } from '../components/Findings';
import { StackedMeter } from '../components/Meter';
import { Read } from '../components/Read';
import { isTrue, notCountedText, ofCluster, schedulable, takesReplicas } from '../lib/capacity';
import { bytes, number, percent } from '../lib/format';
import { countByHealth } from '../lib/table';
import type { Tone } from '../lib/tone';
import { healths, type Health } from '../lib/volume';

export function Dashboard() {
  return (
    <>
      <h1>Dashboard</h1>
      <NotWell />
      <div className="cards">
        <CapacityCard />
        <VolumesCard />
        <NodesCard />
      </div>
      <EventsCard id="events" title="Recent Events" />
    </>
  );
}

function CapacityCard() {
  const nodes = useCollection('nodes');
  const settings = useCollection('settings');
  const over = Number(settings.data?.find((s) => s.name === 'storage-over-provisioning-percentage')?.valueInForce ?? '100');
  return (
    <section className="card" aria-labelledby="capacity">
      <h2 id="capacity">Capacity</h2>
      <Read query={nodes} what="nodes">
        {(list) => <CapacityFigures nodes={list} over={Number.isFinite(over) ? over : 100} />}
      </Read>
    </section>
  );
}

function CapacityFigures({ nodes, over }: { nodes: Node[]; over: number }) {
  const c = ofCluster(nodes);
  const text = `${bytes(c.used)} of ${bytes(c.total)} used (${percent(c.used, c.total)})`;
  return (
    <>
      <p className="figure">{bytes(c.available)} free</p>
      <StackedMeter
        label="Capacity"
        text={text}
        whole={c.total}
        parts={[
          { name: 'Used', value: c.used, className: 'used' },
          { name: 'Reserved', value: Math.min(c.reserved, c.available), className: 'reserved' },
        ]}
      />
      <dl className="figures">
        <dt>Used</dt>
        <dd>
          {bytes(c.used)} of {bytes(c.total)}
        </dd>
        <dt>Reserved for other uses</dt>
        <dd>{bytes(c.reserved)}</dd>
        <dt>Scheduled for replicas</dt>
        <dd>{bytes(c.scheduled)}</dd>
        <dt>Available for new replicas</dt>
        <dd>{bytes(schedulable(nodes, over))}</dd>
      </dl>
      {c.notCounted > 0 && <p className="warning">{notCountedText(c.notCounted)}</p>}
    </>
  );
}

const tones: Record<Health, Tone> = { faulted: 'bad', degraded: 'warn', busy: 'busy', healthy: 'good', detached: 'idle' };
const words: Record<Health, string> = { faulted: 'Faulted', degraded: 'Degraded', busy: 'In transition', healthy: 'Healthy', detached: 'Detached' };

function VolumesCard() {
  const volumes = useCollection('volumes');
  return (
    <section className="card" aria-labelledby="volumes">
      <h2 id="volumes">Volumes</h2>
      <Read query={volumes} what="volumes">
        {(list) => <HealthCounts volumes={list} />}
      </Read>
    </section>
  );
}

function HealthCounts({ volumes }: { volumes: Volume[] }) {
  const counts = countByHealth(volumes);
  return (
    <>
      <p className="figure">{number(volumes.length)}</p>
      <ul className="counts">
        {healths.map((h) => (
          <li key={h} className={counts[h] === 0 ? 'none' : ''}>
            <Link href={`/volumes?health=${h}`}>
              <Badge tone={tones[h]}>{words[h]}</Badge>
              <span className="count">{number(counts[h])}</span>
            </Link>
          </li>
        ))}
      </ul>
    </>
  );
}

function NodesCard() {
  const nodes = useCollection('nodes');
  return (
    <section className="card" aria-labelledby="nodes">
      <h2 id="nodes">Nodes and disks</h2>
      <Read query={nodes} what="nodes">
        {(list) => <NodeCounts nodes={list} />}
      </Read>
    </section>
  );
}

function NodeCounts({ nodes }: { nodes: Node[] }) {
  const disks = nodes.flatMap((n) => Object.values(n.disks ?? {}).map((d) => ({ n, d })));
  const rows: [string, Tone, number][] = [
    ['Nodes not ready', 'bad', nodes.filter((n) => !isTrue(n.conditions, 'Ready')).length],
    ['Nodes ready', 'good', nodes.filter((n) => isTrue(n.conditions, 'Ready')).length],
    ['Disks not ready', 'bad', disks.filter(({ d }) => !isTrue(d.conditions, 'Ready')).length],
    ['Disks that accept no new replicas', 'warn', disks.filter(({ n, d }) => isTrue(d.conditions, 'Ready') && !takesReplicas(n, d)).length],
    ['Disks that accept new replicas', 'good', disks.filter(({ n, d }) => takesReplicas(n, d)).length],
  ];
  return (
    <>
      <p className="figure">
        {number(nodes.length)} {nodes.length === 1 ? 'node' : 'nodes'}
      </p>
      <ul className="counts">
        {rows.map(([name, tone, count]) => (
          <li key={name} className={count === 0 ? 'none' : ''}>
            <Link href="/nodes">
              <Badge tone={tone}>{name}</Badge>
              <span className="count">{number(count)}</span>
            </Link>
          </li>
        ))}
      </ul>
    </>
  );
}

function NotWell() {
  const findings = useCollection('findings');
  return (
    <section className="card" aria-labelledby="not-well">
      <h2 id="not-well">What needs attention</h2>
      <Read query={findings} what="findings" ages>
        {(list) => (list.length === 0 ? <p>No problems found. Everything is in its requested state.</p> : <Findings list={list} />)}
      </Read>
    </section>
  );
}
