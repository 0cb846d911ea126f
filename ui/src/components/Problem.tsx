import type { ApiError } from '../api/http';
import { Button } from './Button';

// Problem shows an error as the API said it.
export function Problem({ error, retry }: { error: ApiError; retry?: () => void }) {
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
