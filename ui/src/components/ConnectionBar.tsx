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
    <div role="status" className="connection">
      {late && <p>The connection to the API is lost. What is shown may be some seconds old; it is being connected again.</p>}
    </div>
  );
}
