import type { ApiError } from '../api/http';
import { Button } from './Button';

// Problem shows an error with the text of the API. With retry, it stands in the place of the data that could not be
// read. Data that the account may not read is not shown as an error.
export function Problem({ error, retry }: { error: ApiError; retry?: () => void }) {
  if (error.status === 403 && retry) return <p className="small">Not shown: {error.message}.</p>; // a retry would not help, and nothing is broken
  return (
    <div className="problem" role="alert">
      <p>
        <strong>{error.status === 0 ? error.code : `${error.status} ${error.code}`}</strong>: {error.message}
      </p>
      {error.detail !== '' && <pre>{error.detail}</pre>}
      {retry && <Button onPress={retry}>Try again</Button>}
    </div>
  );
}
