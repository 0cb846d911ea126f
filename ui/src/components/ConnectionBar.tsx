import { useEffect, useState } from 'react';
import { useConnection } from '../api/live';
import { dateTime } from '../lib/format';

// graceful is the time, in milliseconds, for which a lost connection is not reported: a change of the leader takes some
// seconds.
const graceful = 3000;

// ConnectionBar warns that the page may show old data.
export function ConnectionBar() {
  const { state, currentUntil } = useConnection();
  const [late, setLate] = useState(false);
  useEffect(() => {
    if (state === 'open') {
      setLate(false);
      return undefined;
    }
    const timer = setTimeout(() => setLate(true), graceful);
    return () => clearTimeout(timer);
  }, [state]);
  return (
    <div role="status" className="connection" data-state={state}>
      {late && (
        <p>
          {currentUntil === 0 ? 'Live updates have not started yet.' : `Live updates have been interrupted since ${dateTime(new Date(currentUntil))}.`} The page is trying to connect. Until it is connected, the data
          shown may be out of date.
        </p>
      )}
    </div>
  );
}
