import { Link } from 'wouter';
import { useVolumeAction, type Act } from '../../actions/useVolumeAction';
import { useCollection } from '../../api/live';
import type { Volume } from '../../api/types';
import { Conditions } from '../../components/Conditions';
import { EventsCard } from '../../components/EventList';
import { Findings } from '../../components/Findings';
import { HealthBadge } from '../../components/HealthBadge';
import { LocalityMark } from '../../components/LocalityMark';
import { Read } from '../../components/Read';
import { VolumeName } from '../../components/VolumeName';
import { aboutVolume } from '../../lib/events';
import { VolumeMenu } from '../volumes/VolumeMenu';
import { Facts } from './Facts';
import { Placement } from './Placement';
import { Snapshots } from './Snapshots';
import { Source } from './Source';
import { Users } from './Users';

export default function VolumePage({ name }: { name: string }) {
  const volumes = useCollection('volumes');
  const [act, dialog] = useVolumeAction(volumes.data ?? []);
  return (
    <>
      <Read query={volumes} what="volumes">
        {(list) => {
          const volume = list.find((v) => v.name === name);
          return volume === undefined ? <NoVolume name={name} /> : <VolumeDetail volume={volume} act={act} />;
        }}
      </Read>
      {dialog}
    </>
  );
}

function NoVolume({ name }: { name: string }) {
  return (
    <>
      <h1>{name}</h1>
      <p>
        There is no volume with this name. <Link href="/volumes">All volumes</Link>
      </p>
    </>
  );
}

function VolumeDetail({ volume, act }: { volume: Volume; act: Act }) {
  return (
    <>
      <div className="title">
        <h1>
          <VolumeName volume={volume} /> <HealthBadge volume={volume} /> <LocalityMark volume={volume} />
        </h1>
        <VolumeMenu volume={volume} act={act} label="Actions ▾" />
      </div>
      <AboutVolume volume={volume} />
      <div className="cards wide">
        <Facts volume={volume} />
        <Users volume={volume} />
      </div>
      <Placement volume={volume} />
      <Snapshots volume={volume} />
      <section className="card" aria-labelledby="conditions">
        <h2 id="conditions">Conditions</h2>
        <Conditions conditions={volume.conditions} fold />
      </section>
      <EventsCard id="events" title="Events" of={(events) => aboutVolume(events, volume)} />
      <Source resource={volume} />
    </>
  );
}

function AboutVolume({ volume }: { volume: Volume }) {
  const findings = useCollection('findings');
  const list = (findings.data ?? []).filter((f) => f.object.volume === volume.name);
  if (list.length === 0 && !findings.isError) return null;
  return (
    <section className="card" aria-labelledby="findings">
      <h2 id="findings">What needs attention</h2>
      <Read query={findings} what="findings" ages>
        {() => <Findings list={list} />}
      </Read>
    </section>
  );
}
