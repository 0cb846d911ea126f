import type { Condition } from '../api/types';
import { dateTime, timeOf } from '../lib/format';

// Conditions are all that an object says of itself.
export function Conditions({ conditions, name = 'Conditions' }: { conditions: Record<string, Condition>; name?: string }) {
  const list = Object.entries(conditions).sort(([a], [b]) => a.localeCompare(b));
  if (list.length === 0) return <p>No conditions.</p>;
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
          {list.map(([type, c]) => {
            const since = timeOf(c.lastTransitionTime);
            return (
              <tr key={type}>
                <th scope="row">{type}</th>
                <td>{c.status}</td>
                <td>{c.reason}</td>
                <td className="prose">{c.message}</td>
                <td>{since === null ? '' : dateTime(since)}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}
