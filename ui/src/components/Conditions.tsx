import type { Condition } from '../api/types';
import { arranged, isAsWanted, wantedText } from '../lib/conditions';
import { timeOf } from '../lib/format';
import { Ago } from './Ago';
import { Badge } from './Badge';

interface Props {
  conditions: Record<string, Condition>;
  name?: string;
  // fold hides the conditions that report no problem until the user opens them.
  fold?: boolean;
}

// Conditions shows all conditions of an object, those that report a problem first.
export function Conditions({ conditions, name = 'Conditions', fold = false }: Props) {
  const { wrong, wanted } = arranged(conditions);
  if (wrong.length + wanted.length === 0) return <p>No conditions.</p>;
  if (!fold) return <Table list={[...wrong, ...wanted]} name={name} />;
  return (
    <>
      {wrong.length > 0 && <Table list={wrong} name={name} />}
      {wanted.length > 0 && (
        <details>
          <summary>{wantedText(wanted.length, wrong.length > 0)}</summary>
          <Table list={wanted} name={`${name} that report no problem`} />
        </details>
      )}
    </>
  );
}

function Table({ list, name }: { list: [string, Condition][]; name: string }) {
  return (
    // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- what scrolls must be reachable by keyboard
    <div className="scroll" tabIndex={0} role="group" aria-label={name}>
      <table className="table loose">
        <thead>
          <tr>
            <th scope="col">Condition</th>
            <th scope="col">Status</th>
            <th scope="col">Reason</th>
            <th scope="col">Message</th>
            <th scope="col">Since</th>
          </tr>
        </thead>
        <tbody>
          {list.map(([type, c]) => (
            <Row key={type} type={type} condition={c} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Row({ type, condition: c }: { type: string; condition: Condition }) {
  const since = timeOf(c.lastTransitionTime);
  const isCalm = isAsWanted(type, c);
  return (
    <tr className={isCalm ? 'calm' : ''}>
      <th scope="row">{type}</th>
      <td>{isCalm ? c.status : <Badge tone="warn">{c.status || 'Unknown'}</Badge>}</td>
      <td>{c.reason}</td>
      <td className="prose">{c.message}</td>
      <td className="since">{since !== null && <Ago date={since} />}</td>
    </tr>
  );
}
