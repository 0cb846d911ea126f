import { useState } from 'react';
import { Link } from 'wouter';
import { useEvents, useVolumeByName } from '../api/live';
import type { LonghornEvent } from '../api/types';
import { lastOf, newestFirst, volumeOf } from '../lib/events';
import { number } from '../lib/format';
import { objectText } from '../lib/names';
import { Ago } from './Ago';
import { Badge } from './Badge';
import { Button } from './Button';
import { Read } from './Read';

interface Props {
  id: string;
  title: string;
  // of selects the Events that are shown.
  of?: (events: LonghornEvent[]) => LonghornEvent[];
  // hideObject: all Events are about the object that the page shows.
  hideObject?: boolean;
}

// atFirst is the number of Events that are shown until the user asks for more.
const atFirst = 10;

// EventsCard shows the latest Events, the newest first.
export function EventsCard({ id, title, of = (events) => events, hideObject }: Props) {
  const events = useEvents();
  return (
    <section className="card" aria-labelledby={id}>
      <h2 id={id}>{title}</h2>
      <Read query={events} what="Events">
        {(data) => <Entries list={newestFirst(of(data))} hideObject={hideObject ?? false} />}
      </Read>
    </section>
  );
}

function Entries({ list, hideObject }: { list: LonghornEvent[]; hideObject: boolean }) {
  const [all, setAll] = useState(false);
  return (
    <>
      {list.length === 0 && <p>No Events. Kubernetes deletes Events after one hour, unless the API server has another --event-ttl.</p>}
      <ul className="events">
        {(all ? list : list.slice(0, atFirst)).map((e) => (
          <Entry key={e.id} entry={e} hideObject={hideObject} />
        ))}
      </ul>
      {list.length > atFirst && (
        <Button look="quiet" onPress={() => setAll(!all)}>
          {all ? 'Show fewer' : `Show all ${number(list.length)}`}
        </Button>
      )}
    </>
  );
}

function Entry({ entry, hideObject }: { entry: LonghornEvent; hideObject: boolean }) {
  const { involvedObject: object, reason, message, count } = entry.event;
  const last = lastOf(entry);
  return (
    <li>
      <p className="small">
        {last > 0 && <Ago date={new Date(last)} />} {entry.eventType === 'Warning' && <Badge tone="warn">Warning</Badge>} <strong>{reason}</strong>
        {!hideObject && (
          <>
            {' · '}
            <About kind={object.kind} name={object.name} volume={volumeOf(entry)} />
          </>
        )}
        {count > 1 && ` · ${number(count)} times`}
      </p>
      <p>{message}</p>
    </li>
  );
}

function About({ kind, name, volume }: { kind: string; name: string; volume: string }) {
  const volumeByName = useVolumeByName();
  const text = objectText(kind, name, volumeByName(volume));
  if (volume !== '') return <Link href={`/volumes/${encodeURIComponent(volume)}`}>{text}</Link>;
  if (kind === 'Node') return <Link href={`/nodes#${name}`}>{text}</Link>;
  if (kind === 'Setting') return <Link href={`/settings#${name}`}>{text}</Link>;
  return <>{text}</>;
}
