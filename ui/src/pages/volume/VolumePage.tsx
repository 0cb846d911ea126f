import { Link } from 'wouter';
import { useCollection } from '../../api/live';
import type { Volume } from '../../api/types';
import { EventsCard } from '../../components/EventList';
import { Findings } from '../../components/Findings';
import { HealthBadge } from '../../components/HealthBadge';
import { Loading } from '../../components/Loading';
import { LocalityMark } from '../../components/LocalityMark';
import { Problem } from '../../components/Problem';
import { aboutVolume } from '../../lib/events';
import { VolumeMenu } from '../volumes/VolumeMenu';
import { Facts } from './Facts';
import { Placement } from './Placement';
import { Source } from './Source';
import { Users } from './Users';
import { Conditions } from '../../components/Conditions';

export default function VolumePage({ name }: { name: string }) {
  const volumes = useCollection('volumes');
  if (volumes.isPending) return <Loading what="volumes" />;
  if (volumes.data === undefined) return <Problem error={volumes.error} retry={() => void volumes.refetch()} />;
  const volume = volumes.data.find((v) => v.name === name);
  if (volume === undefined) {
    return (
      <>
        <h1>{name}</h1>
        <p>
          There is no volume of this name. <Link href="/volumes">All volumes</Link>
        </p>
      </>
    );
  }
  return <VolumeDetail volume={volume} />;
}

function VolumeDetail({ volume }: { volume: Volume }) {
  return (
    <>
      <div className="title">
        <h1>
          {volume.name} <HealthBadge volume={volume} /> <LocalityMark volume={volume} />
        </h1>
        <VolumeMenu volume={volume} label="Actions ▾" />
      </div>
      <AboutVolume volume={volume} />
      <div className="cards wide">
        <Facts volume={volume} />
        <Users volume={volume} />
      </div>
      <Placement volume={volume} />
      <section className="card" aria-labelledby="conditions">
        <h2 id="conditions">Conditions</h2>
        <Conditions conditions={volume.conditions} />
      </section>
      <EventsCard id="events" title="Events" of={(events) => aboutVolume(events, volume)} />
      <Source resource={volume} />
    </>
  );
}

function AboutVolume({ volume }: { volume: Volume }) {
  const findings = useCollection('findings');
  const list = (findings.data ?? []).filter((f) => f.object.volume === volume.name);
  if (findings.isError) return <Problem error={findings.error} />;
  if (list.length === 0) return null;
  return (
    <section className="card" aria-labelledby="findings">
      <h2 id="findings">What needs attention</h2>
      <Findings list={list} />
    </section>
  );
}
