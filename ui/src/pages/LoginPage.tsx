import { useState } from 'react';
import { Form } from 'react-aria-components';
import { useLogin } from '../api/session';
import { Button } from '../components/Button';
import { Command } from '../components/Command';
import { TextInput } from '../components/TextInput';

const howTo = 'kubectl -n longhorn-system create token ACCOUNT --audience longhorn-backend';

// LoginPage tells the user if a session has ended.
export function LoginPage({ hasEnded }: { hasEnded: boolean }) {
  const [token, setToken] = useState('');
  const login = useLogin();
  return (
    <main className="alone">
      <h1>Log in to Longhorn</h1>
      {hasEnded && (
        <p className="warning" role="alert">
          Your session has ended: the token has expired or was revoked, or you logged out in another tab. Log in again to return to the page where you were.
        </p>
      )}
      <p>The page has the rights of the account that you log in with. Create a token of the account for the audience longhorn-backend. Replace ACCOUNT with the name of the ServiceAccount:</p>
      <Command text={howTo} />
      <Form
        className="form"
        onSubmit={(event) => {
          event.preventDefault();
          login.mutate(token.trim());
        }}
      >
        <TextInput label="Token" type="password" value={token} onChange={setToken} error={login.error?.message} takesFocus isRequired autoComplete="current-password" />
        <div className="actions">
          <Button type="submit" look="primary" isDisabled={token.trim() === '' || login.isPending}>
            Log in
          </Button>
        </div>
      </Form>
      <p className="small">The browser stores the token in a cookie that no script can read, until you log out or close the browser.</p>
    </main>
  );
}
