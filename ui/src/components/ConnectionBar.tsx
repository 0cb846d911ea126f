import { useEffect, useState } from 'react';
import { useConnection } from '../api/live';

// graceful is how long a connection may be lost before it is said, in milliseconds: a leader that changes takes some seconds.
const graceful = 3000;

// ConnectionBar says that what is shown may be old.
export function ConnectionBar() {
  const state = useConnection();
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
      {late && <p>Live updates are interrupted and being mended. What is shown may be up to half a minute old.</p>}
    </div>
  );
}
