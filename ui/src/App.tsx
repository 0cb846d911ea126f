import { QueryClientProvider } from '@tanstack/react-query';
import { lazy, Suspense, useState, type ReactNode } from 'react';
import { Route, Switch, useLocation } from 'wouter';
import { newQueryClient } from './api/live';
import { useSession } from './api/session';
import { ErrorBoundary } from './components/ErrorBoundary';
import { Layout } from './components/Layout';
import { Loading } from './components/Loading';
import { Problem } from './components/Problem';
import { lastUser } from './lib/session';
import { Dashboard } from './pages/Dashboard';
import { LoginPage } from './pages/LoginPage';
import { NoPage } from './pages/NoPage';
import { VolumesPage } from './pages/volumes/VolumesPage';

const VolumePage = lazy(() => import('./pages/volume/VolumePage'));
const NodesPage = lazy(() => import('./pages/nodes/NodesPage'));
const SettingsPage = lazy(() => import('./pages/settings/SettingsPage'));

export function App() {
  return (
    <ErrorBoundary place="">
      <WhoIsThere />
    </ErrorBoundary>
  );
}

// WhoIsThere keeps showing the page if it cannot read the session again. The address does not change during a login, so
// the user returns to the same place afterwards.
function WhoIsThere() {
  const session = useSession();
  const [last, setLast] = useState('');
  const now = lastUser(last, session.data);
  if (now !== last) setLast(now);
  if (session.data === undefined) {
    if (!session.isError) return <Loading what="the session" />;
    return (
      <main className="alone">
        <Problem error={session.error} retry={() => void session.refetch()} />
      </main>
    );
  }
  const { user, trustedNetwork } = session.data;
  if (user === '' && !trustedNetwork) return <LoginPage hasEnded={last !== ''} />;
  return (
    <Remembered key={user}>
      <Layout session={session.data}>
        <Pages />
      </Layout>
    </Remembered>
  );
}

// Remembered keeps the data that its pages have read while it is mounted. The next user must not see data that only
// this user may read.
function Remembered({ children }: { children: ReactNode }) {
  const [client] = useState(newQueryClient);
  return <QueryClientProvider client={client}>{children}</QueryClientProvider>;
}

function Pages() {
  const [place] = useLocation();
  return (
    <ErrorBoundary place={place}>
      <Suspense fallback={<Loading what="the page" />}>
        <Switch>
          <Route path="/" component={Dashboard} />
          <Route path="/volumes" component={VolumesPage} />
          <Route path="/volumes/:name">{({ name }) => <VolumePage key={name} name={decodeURIComponent(name)} />}</Route>
          <Route path="/nodes" component={NodesPage} />
          <Route path="/settings" component={SettingsPage} />
          <Route>
            <NoPage place={place} />
          </Route>
        </Switch>
      </Suspense>
    </ErrorBoundary>
  );
}
